import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { newTeam, processed, queueing } from "../support/harness.ts";
import { create, head, locationOf, offsetOf, patch } from "../support/tus.ts";

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const MEBIBYTE = 1024 * 1024;

describe("An upload", () => {
  test.each([1, 100_000, 5 * MEBIBYTE, 5 * MEBIBYTE + 1, 12 * MEBIBYTE])(
    "An upload of %i bytes is stored, in whatever pieces it comes.",
    async (size) => {
      const team = await newTeam(queueing);
      const bytes = Uint8Array.from({ length: size }, (_, i) => (i * i) % 251);
      const made = await create(team.call, size);
      expect(made.status, made.text).toBe(201);
      const path = locationOf(made);
      for (let offset = 0; offset < size; ) {
        const piece = bytes.slice(offset, offset + Math.min(3 * MEBIBYTE, Math.ceil(size / 3)));
        const sent = await patch(team.call, path, offset, piece);
        expect([sent.status, offsetOf(sent)], sent.text).toEqual([204, offset + piece.length]);
        offset += piece.length;
        expect(offsetOf(await head(team.call, path))).toBe(offset);
      }
      const id = path.split("/").at(-1)?.split(".")[0] ?? "";
      expect(await processed(team, id)).toMatchObject({
        status: "completed",
        failure: null,
        size,
        sha256: sha256(bytes),
      });
    },
  );
});
