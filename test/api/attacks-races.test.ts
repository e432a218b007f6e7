import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Deps, Settings } from "../../src/deps.ts";
import {
  type Answer,
  form,
  newTeam,
  newUser,
  startWorker,
  type Team,
  withoutHashing,
  withoutJobs,
} from "../support/harness.ts";

/* Many requests at once, of which only so many may win. */

/** Without hashing, which is slow, and without delivery of messages: neither is what is raced for. */
const changed = (deps: Deps, settings: Partial<Settings>): Deps => ({
  ...withoutHashing(withoutJobs(deps)),
  settings: { ...deps.settings, ...settings },
});
const workerWith = (settings: Partial<Settings> = {}) => startWorker((deps) => changed(deps, settings));
const plain = workerWith();

const atOnce = (count: number, act: (i: number) => Promise<Answer>): Promise<Answer[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => act(i)));

/** How often each status was answered. */
function tally(answers: Answer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status, body } of answers) {
    const name = body?.code ?? String(status);
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

const usageOf = async (team: Team) => (await team.call("GET", "/docs/v1/usage")).body.data;

describe("Changes of users at once", () => {
  test("Fifty creations of one email at once make one user.", async () => {
    const team = await newTeam(plain);
    const spellings = ["race@canary.example", "RACE@canary.example", "ｒace@canary.example", " race@canary.example "];
    const answers = await atOnce(50, (i) =>
      team.call("POST", "/auth/v1/users", { json: { email: spellings[i % 4], password: "canary-password" } }),
    );
    expect(tally(answers)).toEqual({ 200: 1, email_taken: 49 });
    expect((await team.call("GET", "/auth/v1/users")).body).toHaveLength(1);
  });

  test("Of twenty users that take one email at once, one has it and the others keep theirs.", async () => {
    const team = await newTeam(plain);
    const users = await Promise.all(
      Array.from({ length: 20 }, (_, i) => newUser(team, { email: `${i}@canary.example` })),
    );
    const answers = await atOnce(20, (i) =>
      team.call("PATCH", `/auth/v1/users/${users[i]._id}`, { json: { email: "wanted@canary.example" } }),
    );
    expect(tally(answers)).toEqual({ 200: 1, email_taken: 19 });
    const emails = (await team.call("GET", "/auth/v1/users")).body.map(({ email }: { email: string }) => email);
    expect(emails.filter((email: string) => email === "wanted@canary.example")).toHaveLength(1);
    expect(new Set(emails).size).toBe(20);
  });

  test("Of twenty updates of the same version one wins, and none is lost.", async () => {
    const team = await newTeam(plain);
    const user = await newUser(team);
    const path = `/auth/v1/users/${user._id}`;
    const headers = { "If-Match": '"0"' };
    const answers = await atOnce(20, (i) => team.call("PATCH", path, { json: { lastname: `${i}` }, headers }));
    expect(tally(answers)).toEqual({ 200: 1, version_mismatch: 19 });
    const winner = answers.find(({ status }) => status === 200)?.body;
    expect((await team.call("GET", path)).body.data).toEqual(winner);
    expect(winner.__v).toBe(1);
  });

  test("Twenty updates that ask for no version all count.", async () => {
    const team = await newTeam(plain);
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    const answers = await atOnce(20, (i) => team.call("PATCH", path, { json: { lastname: `${i}` } }));
    expect(tally(answers)).toEqual({ 200: 20 });
    const versions = answers.map(({ body }) => body.__v).sort((a, b) => a - b);
    expect(versions).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  });

  test("A version that was seen before a change does not delete what came after.", async () => {
    const team = await newTeam(plain);
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    await team.call("PATCH", path, { json: { lastname: "new" } });
    const stale = await team.call("DELETE", path, { headers: { "If-Match": '"0"' } });
    expect([stale.status, stale.body.code]).toEqual([412, "version_mismatch"]);
    expect((await team.call("GET", path)).status).toBe(200);
    expect((await team.call("DELETE", path, { headers: { "If-Match": '"1"' } })).status).toBe(200);
    expect((await team.call("DELETE", path, { headers: { "If-Match": '"1"' } })).status).toBe(404);
  });

  test("Of twenty deletions of a user at once, one finds the user.", async () => {
    const team = await newTeam(plain);
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    expect(tally(await atOnce(20, () => team.call("DELETE", path)))).toEqual({ 200: 1, not_found: 19 });
  });

  test("A user that is updated and deleted at once is gone, and does not come back.", async () => {
    const team = await newTeam(plain);
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    const answers = await atOnce(20, (i) =>
      i === 10 ? team.call("DELETE", path) : team.call("PATCH", path, { json: { lastname: `${i}` } }),
    );
    expect(answers[10]?.status).toBe(200);
    for (const { status } of answers) expect([200, 404]).toContain(status);
    expect((await team.call("GET", path)).status).toBe(404);
  });
});

describe("Changes of keys at once", () => {
  test("Of twenty deletions of a key at once, one finds it.", async () => {
    const team = await newTeam(plain);
    const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "raced" } });
    const answers = await atOnce(20, () => team.call("DELETE", `/auth/v1/apikeys/${body.data.id}`));
    expect(tally(answers)).toEqual({ 200: 1, not_found: 19 });
  });

  test("A key that deletes itself twenty times at once does it once.", async () => {
    const team = await newTeam(plain);
    const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "raced" } });
    const { id, key: token } = body.data;
    const { 200: deleted, ...others } = tally(
      await atOnce(20, () => team.call("DELETE", `/auth/v1/apikeys/${id}`, { token })),
    );
    expect(deleted).toBe(1);
    for (const code of Object.keys(others)) expect(["not_found", "token_invalid"]).toContain(code);
    expect((await team.call("GET", "/docs/v1/usage", { token })).status).toBe(401);
  });

  test("A login during which its user is deleted leaves no key that works.", async () => {
    // The user ends between the check of the password and the making of the key.
    const team = await newTeam(plain);
    const { _id, email } = await newUser(team);
    const slow = startWorker((deps) => ({
      ...deps,
      secrets: {
        ...deps.secrets,
        isCurrentHash: () => true,
        verifyPassword: async () => {
          await team.call("DELETE", `/auth/v1/users/${_id}`);
          return true;
        },
      },
    }));
    const json = { teamId: team.teamId, email, password: "canary-password" };
    const answer = await slow.call("POST", "/auth/v1/login", { json });
    expect([answer.status, answer.body.code]).toEqual([401, "login_failed"]);
    const keys = await env.DB.prepare("select id from api_keys where user_id = ?").bind(_id).all();
    expect(keys.results).toEqual([]);
  });
});

describe("Changes of files at once", () => {
  test("A file that is deleted twenty times at once is gone once, and counted once.", async () => {
    const team = await newTeam(plain);
    await team.call("POST", "/docs/v1/uploads", { body: form("kept.txt", "kept") });
    const { headers } = await team.call("POST", "/docs/v1/uploads", { body: form("raced.txt", "raced") });
    const path = headers.get("Location") ?? "";
    const counts = tally(await atOnce(20, () => team.call("DELETE", path)));
    expect(counts["200"]).toBeGreaterThanOrEqual(1);
    expect(Object.keys(counts).every((code) => ["200", "not_found"].includes(code))).toBe(true);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 4 });
    expect((await env.BUCKET.list({ prefix: team.teamId })).objects).toHaveLength(1);
  });

  test("A file that is deleted and reprocessed at once leaves nothing.", async () => {
    const team = await newTeam(plain);
    const { headers } = await team.call("POST", "/docs/v1/uploads", { body: form("raced.txt", "raced") });
    const path = headers.get("Location") ?? "";
    await env.DB.prepare("update files set status = 'completed' where team_id = ?").bind(team.teamId).run();
    await atOnce(20, (i) => (i === 10 ? team.call("DELETE", path) : team.call("POST", `${path}/reprocess`)));
    expect((await team.call("GET", path)).status).toBe(404);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  });
});

const BOUNDARY = "canaryboundary";

/** A form with its length stated, as a client over HTTP would send it: the quota reserves by it. */
function sized(content: string, { cut = 0 } = {}) {
  const text = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n${content}\r\n--${BOUNDARY}--\r\n`;
  const headers = {
    "Content-Type": `multipart/form-data; boundary=${BOUNDARY}`,
    "Content-Length": String(text.length),
  };
  return { body: text.slice(0, text.length - cut), headers, bytes: text.length };
}

/** A worker that looks, whenever it begins to store a file, at what its team has reserved by then. */
function watched(settings: Partial<Settings>) {
  const peak = { files: 0, bytes: 0 };
  const worker = startWorker((deps) => {
    const { bytes, ...rest } = changed(deps, settings);
    const put: typeof bytes.put = async (key, ...more) => {
      const row = await env.DB.prepare(
        "select count(*) as files, sum(reserved_bytes) as bytes from files where team_id = ?",
      )
        .bind(key.split("/")[0])
        .first<typeof peak>();
      peak.files = Math.max(peak.files, row?.files ?? 0);
      peak.bytes = Math.max(peak.bytes, row?.bytes ?? 0);
      return bytes.put(key, ...more);
    };
    return { ...rest, bytes: { ...bytes, put } };
  });
  return { worker, peak };
}

describe("The quota of a team", () => {
  const room = { maxTeamFiles: 5, maxTeamBytes: 1_000_000, maxUploadBytes: 100_000 };

  test("The quota of files is not overdrawn by thirty uploads at once.", async () => {
    const { worker, peak } = watched(room);
    const team = await newTeam(worker);
    const uploads = await atOnce(30, (i) => team.call("POST", "/docs/v1/uploads", sized(`file ${i}`)));
    expect(tally(uploads)).toEqual({ 200: 5, quota_exceeded: 25 });
    expect(peak.files).toBeGreaterThan(0);
    expect(peak.files).toBeLessThanOrEqual(5);
    expect((await usageOf(team)).files).toBe(5);
    expect((await env.BUCKET.list({ prefix: team.teamId })).objects).toHaveLength(5);
  });

  test("The quota of bytes is not overdrawn by thirty uploads at once.", async () => {
    const one = sized("x".repeat(1000));
    const maxTeamBytes = 3 * one.bytes + 10;
    const { worker, peak } = watched({ ...room, maxTeamFiles: 100, maxTeamBytes });
    const team = await newTeam(worker);
    const counts = tally(await atOnce(30, () => team.call("POST", "/docs/v1/uploads", one)));
    expect(counts["200"]).toBeGreaterThanOrEqual(3);
    expect(counts.quota_exceeded).toBe(30 - (counts["200"] ?? 0));
    expect(peak.bytes).toBeGreaterThanOrEqual(one.bytes);
    expect(peak.bytes).toBeLessThanOrEqual(maxTeamBytes);
    expect((await usageOf(team)).bytes).toBe(1000 * (counts["200"] ?? 0));
    expect((await usageOf(team)).bytes).toBeLessThanOrEqual(maxTeamBytes);
  });

  test("An upload of unknown length counts by the largest that it may become.", async () => {
    const team = await newTeam(workerWith({ ...room, maxTeamBytes: room.maxUploadBytes - 1 }));
    const answer = await team.call("POST", "/docs/v1/uploads", { body: form("a.txt", "small") });
    expect([answer.status, answer.body.code]).toEqual([413, "quota_exceeded"]);
  });

  test.each(["-1000000", "NaN", "1e3", "0x10", "", "9".repeat(30)])(
    "The quota is not tricked by a Content-Length of %j.",
    async (stated) => {
      const { worker, peak } = watched(room);
      const team = await newTeam(worker);
      const { body, headers } = sized("x".repeat(2000));
      const options = { body, headers: { ...headers, "Content-Length": stated } };
      const answer = await team.call("POST", "/docs/v1/uploads", options);
      expect(answer.body.code ?? "stored").toMatch(/^(stored|file_too_large|invalid_input)$/);
      if (answer.status === 200) expect(peak.bytes).toBeGreaterThanOrEqual(2000);
    },
  );

  test.each<[string, (i: number) => Pick<ReturnType<typeof sized>, "body" | "headers">]>([
    ["are cut off", () => sized("x".repeat(500), { cut: 20 })],
    ["are empty", () => sized("")],
    ["are too large", () => sized("x".repeat(100_001))],
    ["have no file", () => ({ ...sized("x"), body: `--${BOUNDARY}--\r\n` })],
  ])("The quota is given back by twenty uploads that %s.", async (_, broken) => {
    const team = await newTeam(workerWith(room));
    const answers = await atOnce(20, (i) => team.call("POST", "/docs/v1/uploads", broken(i)));
    for (const { status } of answers) expect([400, 413]).toContain(status);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
    expect((await env.BUCKET.list({ prefix: team.teamId })).objects).toEqual([]);
    expect((await team.call("POST", "/docs/v1/uploads", sized("fits again"))).status).toBe(200);
  });

  test("The quota is given back when storing fails.", async () => {
    const team = await newTeam(workerWith(room));
    const broken = startWorker((deps) => ({
      ...deps,
      settings: { ...deps.settings, ...room },
      bytes: {
        ...deps.bytes,
        put: async () => {
          throw new Error("no storage");
        },
      },
    }));
    const { token } = team;
    const answers = await atOnce(10, () => broken.call("POST", "/docs/v1/uploads", { token, ...sized("x") }));
    for (const { status } of answers) expect([413, 500]).toContain(status);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  });

  test("The quota is given back by deletions once each, however often they are sent.", async () => {
    const team = await newTeam(workerWith(room));
    const uploads = await atOnce(5, (i) => team.call("POST", "/docs/v1/uploads", sized(`file ${i}`)));
    expect((await team.call("POST", "/docs/v1/uploads", sized("one more"))).body.code).toBe("quota_exceeded");
    const [path = ""] = uploads.map(({ headers }) => headers.get("Location") ?? "");
    await atOnce(5, () => team.call("DELETE", path));
    expect((await usageOf(team)).files).toBe(4);
    const again = await atOnce(5, () => team.call("POST", "/docs/v1/uploads", sized("again")));
    expect(tally(again)).toEqual({ 200: 1, quota_exceeded: 4 });
  });

  test("The quota of one team is nothing to another.", async () => {
    const worker = workerWith(room);
    const [full, empty] = await Promise.all([newTeam(worker), newTeam(worker)]);
    await atOnce(5, () => full.call("POST", "/docs/v1/uploads", sized("x")));
    expect((await full.call("POST", "/docs/v1/uploads", sized("x"))).status).toBe(413);
    expect((await empty.call("POST", "/docs/v1/uploads", sized("x"))).status).toBe(200);
  });
});
