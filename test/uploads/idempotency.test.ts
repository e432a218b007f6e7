import { createHash } from "node:crypto";
import { describe, expect } from "vitest";
import { DB } from "../support/databases.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { type Answer, newKey, type Team } from "../support/harness.ts";
import { expectSettled, expectSound } from "../support/invariants.ts";
import { rowsOf } from "../support/queries.ts";
import { DAY, MINUTE } from "../support/time.ts";
import { encodeForm, must, World } from "../support/world.ts";

/* Uploads with an Idempotency-Key: the same key in the same team stores one file within 24 hours. */

async function setUp(): Promise<{ world: World; team: Team; send: typeof send }> {
  const world = new World();
  const team = await world.newTeam();
  async function send(text: string, key?: string, from: Team = team, missingBytes = 0): Promise<Answer> {
    const { body, contentType } = await encodeForm("note.txt", text);
    const form = { body: body.slice(0, body.length - missingBytes), contentType };
    return must(world.upload(from, form, key === undefined ? {} : { "Idempotency-Key": key }));
  }
  return { world, team, send };
}

describe("A repeated Idempotency-Key", () => {
  test("returns the first response and stores one file if the bytes are the same, also once it is processed", async () => {
    const { world, team, send } = await setUp();
    const first = await send("text", "k");
    const second = await send("text", "k");
    expect([first.status, second.status]).toEqual([200, 200]);
    expect(second.headers.get("Location")).toBe(first.headers.get("Location"));
    expect(second.body).toEqual(first.body);
    expect(await expectSound(team.teamId)).toMatchObject([{ id: first.id }]);
    await world.drain();
    expect(await rowsOf(team.teamId)).toMatchObject([{ status: "completed" }]);
    expect((await send("text", "k")).id).toBe(first.id);
  });

  test("returns the properties as they were sent, not as the team changed them", async () => {
    const { world, team, send } = await setUp();
    const page: Team = { ...team, token: (await newKey(team, { isPublic: true })).key };
    const first = await send("text", "k", page);
    const json = { name: "secret.txt", folder: "secret", reference: "secret", tags: ["secret"] };
    const changed = await must(world.call("PATCH", `/docs/v1/uploads/${first.id}`, { token: team.token, json }));
    expect([changed.status, changed.body.data]).toMatchObject([200, json]);
    const second = await send("text", "k", page);
    const { updatedAt, __v } = changed.body.data;
    expect([second.status, second.body.data]).toEqual([200, { ...first.body.data, updatedAt, __v }]);
  });

  test("returns the names that it sent, not those of the first upload", async () => {
    const { world, team, send } = await setUp();
    const first = await send("text", "k");
    const { key: token } = await newKey(team, { scopes: ["files:upload"] });
    const form = await encodeForm("guess.txt", "text");
    const second = await must(world.upload({ ...team, token }, form, { "Idempotency-Key": "k" }));
    expect([second.status, second.body.data._id]).toEqual([200, first.body.data._id]);
    expect(second.body.data).toMatchObject({ originalName: "guess.txt", name: "guess.txt" });
    expect(second.text).not.toContain("note.txt");
  });

  test("is a conflict and stores nothing if the bytes differ", async () => {
    const { team, send } = await setUp();
    await send("text", "k");
    const before = await rowsOf(team.teamId);
    const { status, code } = await send("another text", "k");
    expect([status, code]).toEqual([409, "idempotency_conflict"]);
    expect(await rowsOf(team.teamId)).toEqual(before);
    await expectSound(team.teamId);
  });

  test("with the digest of the stored file returns it without its bytes, and otherwise stores nothing", async () => {
    const { world, team, send } = await setUp();
    const digest = `sha-256=:${createHash("sha256").update("text").digest("base64")}:`;
    const ask = async () => {
      const headers = { "Idempotency-Key": "k", "Repr-Digest": digest };
      return must(world.upload(team, await encodeForm("note.txt", "?"), headers));
    };
    expect(await ask()).toMatchObject({ status: 400, code: "digest_mismatch" });
    expect(await rowsOf(team.teamId)).toEqual([]);
    const { id } = await send("text", "k");
    expect(await ask()).toMatchObject({ status: 200, id });
    expect(await expectSound(team.teamId)).toMatchObject([{ id }]);
  });

  test.each([2, 5])("stores one file if %i requests arrive at once, and again", async (count) => {
    const { world, team, send } = await setUp();
    const sendAll = () => Promise.all(Array.from({ length: count }, () => send("text", "k")));
    const early = (await sendAll()).filter(({ code }) => code !== "idempotency_in_progress");
    const stored = [...early, ...(await sendAll())];
    expect(early).not.toEqual([]);
    expect(stored.map(({ status }) => status)).toEqual(stored.map(() => 200));
    expect(new Set(stored.map(({ id }) => id)).size).toBe(1);
    await world.drain();
    expect(await expectSettled(team.teamId)).toHaveLength(1);
  });

  test("stores one of two different files that arrive at once", async () => {
    const { team, send } = await setUp();
    const answers = await Promise.all([send("text", "k"), send("another text", "k")]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect(await expectSound(team.teamId)).toHaveLength(1);
  });

  test("stores the file if the first upload was rejected", async () => {
    const { team, send } = await setUp();
    const { status, code } = await send("text", "k", team, 20);
    expect([status, code]).toEqual([400, "malformed_multipart"]);
    const second = await send("text", "k");
    expect(second.status).toBe(200);
    expect(await expectSound(team.teamId)).toMatchObject([{ id: second.id }]);
  });

  test("stores a new file after the first one was deleted", async () => {
    const { world, team, send } = await setUp();
    const first = await send("text", "k");
    await world.ask("DELETE", `/docs/v1/uploads/${first.id}`, { token: team.token });
    const second = await send("another text", "k");
    expect(second.status).toBe(200);
    expect(second.id).not.toBe(first.id);
    expect(await expectSound(team.teamId)).toMatchObject([{ id: second.id }]);
  });

  test("leaves no receipt once the file is erased", async () => {
    const { world, team, send } = await setUp();
    const { id } = await send("text", "k");
    await world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token });
    expect(await DB.prepare("select * from uploads where team_id = ?").bind(team.teamId).first()).toBeNull();
  });

  test("returns a file that was restored from the trash, unless another one has taken its key", async () => {
    const { world, team, send } = await setUp();
    world.settings = { trashDays: 7 };
    const { token } = team;
    const act = (method: string, path: string) => must(world.ask(method, `/docs/v1/${path}`, { token }));
    const first = await send("text", "k");
    await act("DELETE", `uploads/${first.id}`);
    await act("POST", `trash/${first.id}/restore`);
    expect((await send("text", "k")).id).toBe(first.id);
    await act("DELETE", `uploads/${first.id}`);
    const second = await send("text", "k");
    expect([second.status, second.id === first.id]).toEqual([200, false]);
    await act("POST", `trash/${first.id}/restore`);
    expect((await send("text", "k")).id).toBe(second.id);
    expect(await expectSound(team.teamId)).toHaveLength(2);
  });

  test("replaces an upload whose Worker died ten minutes ago", async () => {
    const { world, team, send } = await setUp();
    const { id } = await send("text", "k");
    await world.interrupt(id, "receiving");
    world.aheadMilliseconds += 9 * 60_000;
    const { code, headers } = await send("text", "k");
    expect(code).toBe("idempotency_in_progress");
    expect(Number(headers.get("Retry-After"))).toBeGreaterThan(0);
    world.aheadMilliseconds += 2 * 60_000;
    const second = await send("text", "k");
    expect(second.status).toBe(200);
    expect(await rowsOf(team.teamId)).toMatchObject([{ id, status: "deleting" }, { id: second.id }]);
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id: second.id, status: "completed" }]);
  });

  test("replaces no upload for twice the time that its connection may be idle", async () => {
    const { world, send } = await setUp();
    world.settings = { uploadIdleMilliseconds: 10 * MINUTE };
    const { id } = await send("text", "k");
    await world.interrupt(id, "receiving");
    world.aheadMilliseconds += 19 * MINUTE;
    expect((await send("text", "k")).code).toBe("idempotency_in_progress");
    world.aheadMilliseconds += 2 * MINUTE;
    const second = await send("text", "k");
    expect([second.status, second.id === id]).toEqual([200, false]);
  });

  test("stores a new file after 24 hours", async () => {
    const { world, team, send } = await setUp();
    const first = await send("text", "k");
    world.aheadMilliseconds += DAY - 60_000;
    expect((await send("text", "k")).id).toBe(first.id);
    world.aheadMilliseconds += 2 * 60_000;
    const later = await send("another text", "k");
    expect(later.status).toBe(200);
    expect(later.id).not.toBe(first.id);
    expect((await send("another text", "k")).id).toBe(later.id);
    expect(await expectSound(team.teamId)).toHaveLength(2);
  });
});

describe("A different Idempotency-Key", () => {
  test("includes the same key of another team", async () => {
    const { world, team, send } = await setUp();
    const other = await world.newTeam();
    const [mine, theirs] = [await send("text", "k"), await send("another text", "k", other)];
    expect([mine.status, theirs.status]).toEqual([200, 200]);
    expect(theirs.id).not.toBe(mine.id);
    expect(await expectSound(team.teamId)).toHaveLength(1);
    expect(await expectSound(other.teamId)).toHaveLength(1);
  });

  test("is scoped to a public key", async () => {
    const { team, send } = await setUp();
    const newPage = async (): Promise<Team> => ({ ...team, token: (await newKey(team, { isPublic: true })).key });
    const senders = [team, await newPage(), await newPage()];
    const first = await Promise.all(senders.map((from) => send("text", "k", from)));
    const again = await Promise.all(senders.map((from) => send("text", "k", from)));
    expect(new Set(first.map(({ id }) => id)).size).toBe(3);
    expect(again.map(({ id }) => id)).toEqual(first.map(({ id }) => id));
  });

  test("stores another file even with the same bytes, as does no key", async () => {
    const { team, send } = await setUp();
    for (const key of ["k", "K", undefined, undefined]) expect((await send("text", key)).status).toBe(200);
    expect(await expectSound(team.teamId)).toHaveLength(4);
  });

  test("can have at most 255 characters", async () => {
    const { team, send } = await setUp();
    const longest = "k".repeat(255);
    const first = await send("text", longest);
    expect(first.status).toBe(200);
    expect((await send("text", longest)).id).toBe(first.id);
    for (const key of ["k".repeat(256), ""]) {
      const { status, code, body } = await send("text", key);
      expect([status, code, body.errors[0].path]).toEqual([400, "invalid_input", "Idempotency-Key"]);
    }
    expect(await expectSound(team.teamId)).toHaveLength(1);
  });
});

test("a slow upload keeps its Idempotency-Key while it makes progress, and rejects a repetition at once", async ({
  world,
  team,
}) => {
  const { body, contentType } = await encodeForm("slow.txt", "slow but steady");
  const lastOfFile = Buffer.from(body).indexOf("steady") + "steady".length;
  let sent = 0;
  const minutes: number[] = [];
  const slow = new ReadableStream<Uint8Array>({
    async pull(controller) {
      // Each byte of the file takes two minutes.
      if (sent < lastOfFile) world.aheadMilliseconds += 120_000;
      controller.enqueue(body.subarray(sent, ++sent));
      if (sent === lastOfFile) {
        const before = world.aheadMilliseconds;
        minutes.push(before / 60_000);
        const repeated = await must(world.upload(team, { body, contentType }, { "Idempotency-Key": "k" }));
        const retryAfter = repeated.headers.get("Retry-After");
        expect([repeated.status, repeated.code, retryAfter]).toEqual([409, "idempotency_in_progress", "10"]);
        expect(world.aheadMilliseconds, "time spent waiting").toBe(before);
      }
      if (sent === body.length) controller.close();
    },
  });
  const first = await must(world.upload(team, { body: slow, contentType }, { "Idempotency-Key": "k" }));
  expect(first.status, first.text).toBe(200);
  expect(minutes[0]).toBeGreaterThan(10);
  expect(await expectSound(team.teamId)).toMatchObject([{ id: first.id, status: "pending" }]);
});
