import { describe, expect } from "vitest";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  call,
  idsIn,
  newTeam,
  read,
  startWorker,
  type Team,
  tally,
  usageOf,
  withoutJobs,
  withSettings,
} from "../support/harness.ts";
import { insertMany } from "../support/rows.ts";
import { ask, create, head, idOf, locationOf, patch, RESUMABLE, tusHeaders } from "../support/tus.ts";
import { issueToken, newPageKey } from "../support/visitors.ts";

/* Hundreds of visitors at once, of whom some give up and some are hostile: whose unfinished uploads give way to others, and when. */

const KIBIBYTE = 1024;
const MEBIBYTE = 1024 * KIBIBYTE;
const MINUTE = 60 * 1000;

/** A Worker whose clock is ahead. */
const ahead = (minutes: number, settings: Parameters<typeof withSettings>[0] = {}) =>
  startWorker((deps) => {
    const changed = withSettings(settings)(withoutJobs(deps));
    return { ...changed, system: { ...deps.system, now: () => deps.system.now() + minutes * MINUTE } };
  });

const newVisitor = (team: Team, fields: object = {}): Promise<{ token: string }> =>
  issueToken(team, { maxFiles: 100, ...fields });
const begin = (visitor: { token: string }, size = 1000, worker: { call: typeof call } = { call }) =>
  create(worker.call, size, undefined, { token: visitor.token });

interface Phones {
  /** Each has as many unfinished uploads. */
  uploads?: number;
  silentMinutes: number;
  sizeBytes?: number;
  offsetBytes?: number;
  /** Distinguishes groups. */
  digit?: number;
}

/** Inserts unfinished uploads of visitors, who each have as many, the first of whom has been silent longest. */
function insertPhones(team: Team, count: number, phones: Phones) {
  const { uploads = 1, silentMinutes, sizeBytes = 1000, offsetBytes = 0, digit = 0 } = phones;
  const visitor = `printf('${digit}%023x', (i - 1) / ${uploads})`;
  const columns = `file_id, team_id, key_id, is_public, upload_token_id, visitor_id, original_name, secret_hash, size_bytes,
    reserved_bytes, offset_bytes, progress_at, created_at, updated_at, due_at`;
  const progressAt = `${Date.now() - silentMinutes * MINUTE} + i`;
  return insertMany(
    count * uploads,
    `insert into uploads (${columns}) select printf('${digit}%023x', i), ?2, 'page', 1, ${visitor}, ${visitor}, '', '', ${sizeBytes},
      ${Math.min(sizeBytes, 5 * MEBIBYTE)}, ${offsetBytes}, ${progressAt}, ${Date.now()}, 1, 4e15 from n`,
    team.teamId,
  );
}

const unfinished = async ({ teamId }: Team): Promise<string[]> =>
  idsIn(
    (
      await DB.prepare("select file_id as _id from uploads where team_id = ? and status = 'receiving' order by file_id")
        .bind(teamId)
        .all<{ _id: string }>()
    ).results,
  );
const phone = (i: number, digit = 0) => digit + i.toString(16).padStart(23, "0");

describe("One visitor with a hundred uploads of one byte", () => {
  test("has twenty of them, blocks nobody, and loses the one that has been silent longest", async ({ team }) => {
    const [hostile, other] = [await newVisitor(team), await newVisitor(team)];
    const answers = [];
    for (let i = 0; i < 100; i++) {
      const created = await begin(hostile);
      answers.push(created);
      if (created.status === 201) await patch(call, locationOf(created), 0, new Uint8Array(1), hostile);
    }
    expect(tally(answers)).toEqual({ 201: 20, too_many_unfinished_uploads: 80 });
    const others = await begin(other);
    expect(others.status).toBe(201);
    const later = ahead(10.1);
    const again = await begin(hostile, 1000, later);
    expect(again.status).toBe(201);
    const [first, ...kept] = answers.filter(({ status }) => status === 201).map(idOf);
    expect(await unfinished(team)).toEqual([...kept, idOf(others), idOf(again)].sort());
    expect(await unfinished(team)).not.toContain(first);
    expect((await head(later.call, locationOf(answers[0]!), hostile)).status).toBe(404);
    expect(await usageOf(team)).toMatchObject({ files: 21, bytes: 21_000 });
  });
});

describe("A page that hands out 2,000 tokens", () => {
  test("blocks other visitors for ten minutes only: the upload that has been silent longest gives way", async () => {
    const team = await newTeam();
    await insertPhones(team, 2000, { silentMinutes: 11 });
    const created = await begin(await newVisitor(team));
    expect(created.status).toBe(201);
    const left = await unfinished(team);
    expect([left.length, left.includes(phone(1)), left.includes(phone(2))]).toEqual([2000, false, true]);
  });

  test("loses first what the visitor has who has the most, even if others have been silent longer", async () => {
    const team = await newTeam();
    await insertPhones(team, 1980, { silentMinutes: 60 });
    await insertPhones(team, 1, { uploads: 20, silentMinutes: 11, digit: 1 });
    expect((await begin(await newVisitor(team))).status).toBe(201);
    const left = await unfinished(team);
    expect([left.includes(phone(1, 1)), left.includes(phone(2, 1)), left.includes(phone(1))]).toEqual([
      false,
      true,
      true,
    ]);
  });

  test("takes no cover behind a visitor who has the most and is not silent", async () => {
    const team = await newTeam();
    await insertPhones(team, 1980, { silentMinutes: 60 });
    await insertPhones(team, 1, { uploads: 20, silentMinutes: 9, digit: 1 });
    expect((await begin(await newVisitor(team))).status).toBe(201);
    expect((await unfinished(team)).filter((id) => [phone(1), phone(1, 1)].includes(id))).toEqual([phone(1, 1)]);
  });

  test("keeps an upload of which more than half has arrived, unless that is less than 64 KiB", async () => {
    const team = await newTeam();
    const visitor = await newVisitor(team);
    await insertPhones(team, 1998, { silentMinutes: 600, sizeBytes: 131_072, offsetBytes: 65_537 });
    await insertPhones(team, 1, { silentMinutes: 11, sizeBytes: 131_074, offsetBytes: 65_537, digit: 1 });
    await insertPhones(team, 1, { silentMinutes: 11, sizeBytes: 65_536, offsetBytes: 65_535, digit: 2 });
    const answers = [await begin(visitor), await begin(visitor), await begin(visitor)];
    expect(tally(answers)).toEqual({ 201: 2, too_many_unfinished_uploads: 1 });
    const left = await unfinished(team);
    expect([left.length, left.includes(phone(1, 1)), left.includes(phone(1, 2))]).toEqual([2000, false, false]);
  });
});

test("honest phones in a dead spot for ten minutes lose nothing: others wait", async () => {
  const team = await newTeam();
  const honest = await newVisitor(team);
  const created = await begin(honest, 200_000);
  const path = locationOf(created);
  await patch(call, path, 0, new Uint8Array(1000), honest);
  await insertPhones(team, 1999, { silentMinutes: 0 });
  const worker = ahead(9.9);
  const refused = await begin(await newVisitor(team), 1000, worker);
  expect([refused.status, refused.code, refused.headers.get("Retry-After")]).toEqual([
    409,
    "too_many_unfinished_uploads",
    "60",
  ]);
  expect(await unfinished(team)).toHaveLength(2000);
  expect((await head(worker.call, path, honest)).headers.get("Upload-Offset")).toBe("1000");
  expect((await patch(worker.call, path, 1000, new Uint8Array(199_000), honest)).status).toBe(204);
});

test("64 KiB are progress, and fewer are not", async ({ team }) => {
  const visitor = await newVisitor(team);
  const path = locationOf(await begin(visitor, MEBIBYTE));
  const progress = () =>
    DB.prepare("select progress_at as at, progress_bytes as bytes from uploads where team_id = ?")
      .bind(team.teamId)
      .first<{ at: number; bytes: number }>();
  const before = await progress();
  const later = ahead(5);
  await patch(later.call, path, 0, new Uint8Array(64 * KIBIBYTE - 1), visitor);
  expect(await progress()).toEqual({ ...before, bytes: 0 });
  await patch(later.call, path, 64 * KIBIBYTE - 1, new Uint8Array(1), visitor);
  expect(await progress()).toEqual({ at: expect.any(Number), bytes: 64 * KIBIBYTE });
  expect((await progress())?.at).toBeGreaterThanOrEqual((before?.at ?? 0) + 5 * MINUTE);
});

describe("What visitors may reserve, a fifth of the quota", () => {
  const quota = { maxTeamBytes: 500 * MEBIBYTE };

  test("takes 5 MiB of an announcement, and all of it from its first byte", async ({ team }) => {
    const worker = ahead(0, quota);
    const visitor = await newVisitor(team);
    const path = locationOf(await begin(visitor, 60 * MEBIBYTE, worker));
    const reserved = async () => (await usageOf(team)).bytes;
    expect(await reserved()).toBe(5 * MEBIBYTE);
    await patch(worker.call, path, 0, new Uint8Array(), visitor);
    expect(await reserved()).toBe(5 * MEBIBYTE);
    await patch(worker.call, path, 0, new Uint8Array(1), visitor);
    expect(await reserved()).toBe(60 * MEBIBYTE);
    await ask(worker.call, "DELETE", path, {}, visitor);
    expect(await reserved()).toBe(0);
    expect((await create(team.call, 60 * MEBIBYTE)).status).toBe(201);
    expect(await reserved()).toBe(60 * MEBIBYTE);
  });

  test("is refused for ever to a larger file, and for a while once it is used up", async ({ team }) => {
    const worker = ahead(0, quota);
    const visitor = await newVisitor(team);
    expect((await begin(visitor, 101 * MEBIBYTE, worker)).code).toBe("quota_exceeded");
    const paths = [];
    for (let i = 0; i < 2; i++) paths.push(locationOf(await begin(visitor, 60 * MEBIBYTE, worker)));
    const sendFirst = (path = "", at = worker) => patch(at.call, path, 0, new Uint8Array(1), visitor);
    expect((await sendFirst(paths[0])).status).toBe(204);
    const waiting = await sendFirst(paths[1]);
    expect([waiting.status, waiting.code, waiting.headers.get("Retry-After")]).toEqual([
      409,
      "too_many_unfinished_uploads",
      "60",
    ]);
    expect((await head(worker.call, paths[1]!, visitor)).headers.get("Upload-Offset")).toBe("0");
    // The first one has been silent since.
    expect((await sendFirst(paths[1], ahead(10.1, quota))).status).toBe(204);
    expect((await head(worker.call, paths[0]!, visitor)).status).toBe(404);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 60 * MEBIBYTE });
  });

  test("never exceeds the quota of the team", async ({ team }) => {
    const worker = ahead(0, quota);
    const visitor = await newVisitor(team);
    const path = locationOf(await begin(visitor, 60 * MEBIBYTE, worker));
    expect((await create(worker.call, 480 * MEBIBYTE, undefined, { token: team.token })).status).toBe(201);
    const refused = await patch(worker.call, path, 0, new Uint8Array(1), visitor);
    expect([refused.status, refused.code]).toEqual([413, "quota_exceeded"]);
  });

  test("is shared with forms, for which a silent upload gives way, too", async ({ team }) => {
    const worker = ahead(0, quota);
    const page = await newPageKey(team);
    const path = locationOf(await begin(page, 99 * MEBIBYTE, worker));
    await patch(worker.call, path, 0, new Uint8Array(1), page);
    const send = (at: typeof worker) => {
      const body = new FormData();
      body.set("file", new Blob([new Uint8Array(MEBIBYTE + 1)]), "a.bin");
      return at.call("POST", "/docs/v1/uploads", { token: page.token, body });
    };
    expect((await send(worker)).code).toBe("too_many_unfinished_uploads");
    expect((await send(ahead(10.1, quota))).status).toBe(200);
    expect(await read(team, RESUMABLE)).toEqual([]);
  });
});

test("an upload of the team finds room, too, when 3,000 are unfinished", async () => {
  const team = await newTeam();
  await insertPhones(team, 1000, { silentMinutes: 11 });
  const columns =
    "file_id, team_id, key_id, is_public, original_name, secret_hash, size_bytes, created_at, updated_at, due_at";
  const values = "printf('f%023x', i), ?2, '', 0, '', '', 1, 1, 1, 4e15";
  await insertMany(2000, `insert into uploads (${columns}) select ${values} from n`, team.teamId);
  const headers = tusHeaders({ "Upload-Length": "9" });
  expect((await team.call("POST", RESUMABLE, { headers })).status).toBe(201);
  expect(await unfinished(team)).not.toContain(phone(1));
});
