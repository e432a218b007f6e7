import { expect, onTestFinished, test, vi } from "vitest";
import { MEBIBYTE, noise, sha256 } from "../support/bytes.ts";
import { processed } from "../support/client.ts";
import { Line } from "../support/line.ts";
import { Server } from "../support/server.ts";

const RESUMABLE = "/docs/v1/uploads/resumable";

test("A connection that stalls after every MiB still transfers a file of 8 MiB", async () => {
  // No request that stalls times out, also on a slow machine.
  const server = await Server.start(["--var", "UPLOAD_IDLE_SECONDS:600"]);
  onTestFinished(() => server.remove());
  const team = await server.newTeam();
  const line = await Line.open(server.url, () => ({ fault: "stall", afterBytes: MEBIBYTE }));
  onTestFinished(() => line.close());
  const bytes = noise(8 * MEBIBYTE);
  const version = { "Tus-Resumable": "1.0.0" };
  const made = await team.send("POST", RESUMABLE, { headers: { ...version, "Upload-Length": `${bytes.length}` } });
  const path = made.headers.get("Location") ?? "";
  const fetchOffset = async () =>
    Number((await team.send("HEAD", path, { headers: version })).headers.get("Upload-Offset"));
  for (let offset = 0; offset < bytes.length; ) {
    const controller = new AbortController();
    const Authorization = `Bearer ${team.token}`;
    const type = "application/offset+octet-stream";
    const sending = fetch(line.url + path, {
      method: "PATCH",
      headers: { ...version, Authorization, "Content-Type": type, "Upload-Offset": `${offset}` },
      body: bytes.subarray(offset),
      signal: controller.signal,
    }).catch(() => undefined);
    // The request stalls until the client aborts it. The client polls over another connection.
    const next = await vi.waitFor(
      async () => {
        const reported = await fetchOffset();
        expect(reported).toBeGreaterThan(offset);
        return reported;
      },
      { timeout: 100_000, interval: 100 },
    );
    controller.abort();
    await sending;
    offset = next;
  }
  const id = made.headers.get("Content-Location")?.split("/").at(-1) ?? "";
  expect(await processed(team, id)).toMatchObject({ status: "completed", sha256: sha256(bytes) });
  expect(line.connections).toBeGreaterThanOrEqual(8);
});
