import { describe, expect } from "vitest";
import { MAX_LINKS, MAX_TEAM_LINKS } from "../../src/links/links.ts";
import { sample } from "../audio/samples.ts";
import { vttOf } from "../support/bytes.ts";
import { DB } from "../support/databases.ts";
import { beforeWrite } from "../support/deps.ts";
import { apiTest } from "../support/fixtures.ts";
import {
  type Answer,
  atOnce,
  compose,
  dataOf,
  eventsOf,
  expectNoFiles,
  form,
  idsIn,
  metadataOf,
  newKey,
  newMember,
  newTeam,
  OPERATOR,
  openSession,
  processed,
  read,
  readPages,
  rejected,
  startWorker,
  type Team,
  tally,
  usageOf,
  withoutLimits,
  withSettings,
} from "../support/harness.ts";
import { create, locationOf, patch } from "../support/tus.ts";

/* The trash, and holds. What happens in time is in trash/purge. */

const UPLOADS = "/docs/v1/uploads";
const TRASH = "/docs/v1/trash";
const worker = startWorker(compose(withoutLimits, withSettings({ trashDays: 30 })));
const test = apiTest.extend("team", () => newTeam(worker));

const PROPERTIES = {
  name: "Interview.txt",
  folder: "podcast/2026",
  reference: "episode-12",
  tags: ["interview", "ada"],
  metadata: { season: 2 },
};
const PEAKS = { channels: [Array.from({ length: 16 }, (_, i) => (i % 2 === 0 ? 1 : -1))] };

async function put(team: Team, properties: object = {}, { token = team.token, headers = {} } = {}): Promise<string> {
  const body = new FormData();
  body.append("properties", JSON.stringify(properties));
  for (const [part, file] of form("note.txt", "to be kept")) body.append(part, file);
  return (await dataOf(team.call("POST", UPLOADS, { body, token, headers })))._id;
}
const remove = (team: Team, id: string, query = "", token = team.token) =>
  team.call("DELETE", `${UPLOADS}/${id}${query}`, { token });
const restore = (team: Team, id: string, token = team.token) => team.call("POST", `${TRASH}/${id}/restore`, { token });
const batch = (team: Team, json: object, token = team.token) =>
  dataOf(team.call("POST", `${UPLOADS}/batch`, { json, token }));
const trashOf = async (team: Team, token = team.token) =>
  (await readPages({ call: (method, path) => team.call(method, path, { token }) }, `${TRASH}?limit=2`)).flat();
const typesOf = async (team: Team, id: string) =>
  (await eventsOf(team, `subject=${id}`)).map(({ type }: { type: string }) => type);
const openedBy = async (team: Team, url: string) => {
  const { pathname, search } = new URL(url);
  const answer = await team.call("GET", pathname + search, { token: "" });
  return answer.status === 200 ? answer.text : answer.status;
};

describe("Deletion with a trash", () => {
  test("moves the file to the trash, so that no list, filter or link finds it", async ({ team }) => {
    const id = await put(team, PROPERTIES);
    const link = (await dataOf(team.call("POST", `${UPLOADS}/${id}/links`, { json: {} }))).url;
    const { signedUrl } = (await team.call("GET", `${UPLOADS}/${id}`)).body;
    expect(signedUrl, "a signed link, because a presigned URL would stay open").toContain("/docs/v1/links/");
    for (const url of [link, signedUrl]) expect(await openedBy(team, url)).toBe("to be kept");
    const before = await metadataOf(team, id);

    expect((await remove(team, id)).body).toEqual({ status: true, message: "File deleted." });

    const [trashed] = await trashOf(team);
    const { trashedAt, eraseAfter, ...file } = trashed;
    expect(before).toMatchObject({ ...file, __v: before.__v, updatedAt: before.updatedAt });
    expect(Date.parse(eraseAfter) - Date.parse(trashedAt)).toBe(30 * 24 * 60 * 60 * 1000);
    for (const url of [link, signedUrl]) expect(await openedBy(team, url)).toBe(404);
    for (const query of ["", "name=I", "folder=podcast/2026", "tag=ada", "reference=episode-12", "search=view"]) {
      expect(await read(team, `${UPLOADS}?${query}`), query).toEqual([]);
    }
    expect(await read(team, "/docs/v1/folders")).toEqual([]);
    for (const path of ["/metadata", "/status", "/waveform", "/transcript", ""]) {
      await rejected(team, 404, "not_found", () => team.call("GET", `${UPLOADS}/${id}${path}`));
    }
    const changes = [
      ["PATCH", "", { name: "b" }],
      ["POST", "/reprocess", undefined],
      ["PUT", "/waveform", PEAKS],
      ["POST", "/links", {}],
    ] as const;
    for (const [method, path, json] of changes) {
      await rejected(team, 404, "not_found", () => team.call(method, `${UPLOADS}/${id}${path}`, { json }));
    }
    await rejected(team, 404, "not_found", () => remove(team, id));
    await rejected(team, 404, "not_found", () => remove(team, id, "?unfinished=true"));
    expect(await typesOf(team, id)).toEqual(["file.uploaded", "file.trashed"]);
  });

  test("counts in the usage, as a separate part, until the file is erased", async ({ team }) => {
    const [kept, trashed] = [await put(team), await put(team)];
    await remove(team, trashed);
    const usage = { files: 2, bytes: 20, trashFiles: 1, trashBytes: 10 };
    expect(await usageOf(team)).toMatchObject(usage);
    expect(await read(team, `/auth/v1/teams/${team.teamId}`)).toMatchObject({ usage, trashDays: 30 });
    await restore(team, trashed);
    expect(await usageOf(team)).toMatchObject({ files: 2, bytes: 20, trashFiles: 0, trashBytes: 0 });
    await remove(team, kept, "?permanent=true");
    await remove(team, trashed, "?permanent=true");
    await expectNoFiles(team);
    expect(await usageOf(team)).toMatchObject({ trashFiles: 0, trashBytes: 0 });
  });

  test("does not free space in the quota", async ({ team }) => {
    const json = { maxFiles: 2 };
    await team.call("PATCH", `/auth/v1/teams/${team.teamId}`, { json, token: OPERATOR });
    const id = await put(team);
    await put(team);
    await remove(team, id);
    const upload = () => team.call("POST", UPLOADS, { body: form("a.txt", "a") });
    await rejected(team, 409, "file_limit_reached", upload);
    expect((await restore(team, id)).status, "takes nothing, because the trash counts").toBe(200);
    await remove(team, id);
    await rejected(team, 409, "file_limit_reached", upload);
    await team.call("DELETE", `${TRASH}/${id}`);
    expect((await upload()).status).toBe(200);
  });

  test("deleting a folder moves its files to the trash, except for held ones, and a restored file is found in it", async ({
    team,
  }) => {
    const [id, held] = [await put(team, PROPERTIES), await put(team, { folder: PROPERTIES.folder })];
    expect((await team.call("PUT", `${UPLOADS}/${held}/hold`, { json: { reason: "r" } })).status).toBe(200);
    const { folder } = PROPERTIES;
    const { __v: version } = await metadataOf(team, id);
    const removed = await team.call("POST", "/docs/v1/folders/delete", { json: { folder } });
    expect(removed.body).toEqual({
      message: "Folder deleted. 1 held file stays in it.",
      data: { folder, isComplete: true, held: 1 },
    });
    const namedBy = async (query: string) =>
      (await read(team, `${UPLOADS}?${query}`)).map(({ _id }: { _id: string }) => _id).sort();
    expect((await trashOf(team)).map(({ _id, __v }: { _id: string; __v: number }) => [_id, __v])).toEqual([
      [id, version + 1],
    ]);
    expect(await namedBy(`folder=${folder}`)).toEqual([held]);
    expect(await typesOf(team, id)).toEqual(["file.uploaded", "file.trashed"]);
    expect(await typesOf(team, held)).toEqual(["file.uploaded", "file.held"]);

    expect((await dataOf(restore(team, id))).__v, "as after the deletion of a single file").toBe(version + 2);
    expect(await namedBy(`folder=${folder}`)).toEqual([id, held].sort());
    expect(await namedBy(`search=${PROPERTIES.reference}`)).toEqual([id]);
  });

  test("cancels an unfinished upload at once", async ({ team }) => {
    const upload = await create(team.call, 10, { filename: "a" }, { token: team.token });
    const id = upload.headers.get("Content-Location")?.split("/").at(-1) ?? "";
    expect((await remove(team, id)).status).toBe(200);
    expect(await trashOf(team)).toEqual([]);
    await expectNoFiles(team);
  });

  test("frees an Idempotency-Key, also for the file that returns", async ({ team }) => {
    const headers = { "Idempotency-Key": "once" };
    const id = await put(team, {}, { headers });
    expect(await put(team, {}, { headers })).toBe(id);
    await remove(team, id);
    const other = await put(team, {}, { headers });
    expect(other).not.toBe(id);
    await restore(team, id);
    expect(await put(team, {}, { headers })).toBe(other);
  });

  test("erases a file with `permanent`, from the trash too", async ({ team }) => {
    const [listed, trashed] = [await put(team, PROPERTIES), await put(team, PROPERTIES)];
    await remove(team, trashed);
    for (const id of [listed, trashed]) {
      expect((await remove(team, id, "?permanent=true")).status).toBe(200);
      await rejected(team, 404, "not_found", () => remove(team, id, "?permanent=true"));
      await rejected(team, 404, "not_found", () => restore(team, id));
      const [event] = (await eventsOf(team, `subject=${id}&type=file.deleted`)) as { data: object }[];
      expect(event?.data).toMatchObject({ status: "pending", reference: "episode-12", fileType: "text file" });
    }
    await expectNoFiles(team);
  });
});

describe("The list of the trash", () => {
  test("has no page by number beyond the rows that it examines", async ({ team }) => {
    const removed = (count: number, trashedAt: number | null, first: number) =>
      DB.prepare(
        `insert into removed (id, team_id, original_name, reserved_bytes, size_bytes, trashed_at, file, due_at)
         with recursive n(i) as (select 1 union all select i + 1 from n where i < ?2)
         select printf('%024x', ?4 + i), ?1, 'a.mp3', 1, 1, ?3, iif(?3 is null, null,
           '{"status":"completed","key_id":"k","created_at":1,"updated_at":1,"version":0}'), 4e12 from n`,
      ).bind(team.teamId, count, trashedAt, first);
    await DB.batch([removed(30, 1, 0), removed(480, null, 1000)]);
    for (const page of ["page=3&limit=10", "page=6&limit=100"]) {
      await rejected(team, 400, "invalid_input", () => team.call("GET", `${TRASH}?${page}`), ["page"]);
    }
  });
});

describe("The links of a file in the trash", () => {
  const linkOf = (team: Team, id: string, json = {}, token = team.token): Promise<{ _id: string; url: string }> =>
    dataOf(team.call("POST", `${UPLOADS}/${id}/links`, { json, token }));
  const revoke = (team: Team, id: string, token = team.token) => team.call("DELETE", `/docs/v1/links/${id}`, { token });
  const rowsOf = async (team: Team): Promise<number | null> => {
    const [row] = await DB.batch<{ rows: number; links: number }>([
      DB.prepare("select links, (select count(*) from links where team_id = ?1) as rows from teams where id = ?1").bind(
        team.teamId,
      ),
    ]);
    const { rows, links } = row?.results[0] ?? {};
    expect(links, "the links that count are the rows").toBe(rows);
    return rows ?? null;
  };

  test("open their files again after a batch has restored these", async ({ team }) => {
    const ids = [await put(team), await put(team)];
    const urls: string[] = [];
    for (const id of ids) urls.push((await linkOf(team, id)).url, (await linkOf(team, id, { name: "b" })).url);
    await batch(team, { action: "delete", ids });
    for (const url of urls) expect(await openedBy(team, url)).toBe(404);
    await batch(team, { action: "restore", ids });
    for (const url of urls) expect(await openedBy(team, url)).toBe("to be kept");
  });

  test("are listed, so that they can be revoked, and no more once the file is erased", async ({ team }) => {
    const { token } = await newMember(team, "contributor");
    const [id, other] = [await put(team), await put(team)];
    const links = [(await linkOf(team, id))._id, (await linkOf(team, id))._id];
    await remove(team, id);
    await remove(team, other);
    const list = (file: string, by = team) => by.call("GET", `${UPLOADS}/${file}/links`);
    const listed: { _id: string }[] = await dataOf(list(id));
    expect(listed.map(({ _id }) => _id)).toEqual(links);
    expect(await dataOf(list(other))).toEqual([]);
    const asContributor = () => team.call("GET", `${UPLOADS}/${id}/links`, { token });
    await rejected(team, 404, "not_found", asContributor);
    await rejected(team, 404, "not_found", async () => list(id, await newTeam()));
    await remove(team, id, "?permanent=true");
    await rejected(team, 404, "not_found", () => list(id));
  });

  test("stay revoked if they are revoked there, also by a contributor for an own file", async ({ team }) => {
    const { token } = await newMember(team, "contributor");
    const [ofTeam, ofOwn] = [await put(team), await put(team, {}, { token })];
    const links = [await linkOf(team, ofTeam), await linkOf(team, ofOwn, {}, token)] as const;
    for (const id of [ofTeam, ofOwn]) await remove(team, id);
    await rejected(team, 404, "not_found", () => revoke(team, links[0]._id, token));
    await rejected(team, 404, "not_found", async () => revoke(await newTeam(), links[0]._id));
    expect((await revoke(team, links[1]._id, token)).status).toBe(200);
    expect((await revoke(team, links[0]._id)).status).toBe(200);
    await rejected(team, 404, "not_found", () => revoke(team, links[0]._id));
    for (const id of [ofTeam, ofOwn]) await restore(team, id);
    for (const { url } of links) expect(await openedBy(team, url)).toBe(404);
    for (const { _id } of links) expect(await typesOf(team, _id)).toEqual(["link.created", "link.revoked"]);
    expect(await rowsOf(team)).toBe(0);
  });

  test("stay expired, and others keep their expiry", async ({ team }) => {
    const id = await put(team);
    const expiresAt = "2999-01-01T00:00:00.000Z";
    const [expired, kept] = [await linkOf(team, id, { expiresAt }), await linkOf(team, id, { expiresAt })];
    await remove(team, id);
    await DB.prepare("update links set expires_at = 1 where id = ?").bind(expired._id).run();
    await restore(team, id);
    expect([await openedBy(team, expired.url), await openedBy(team, kept.url)]).toEqual([404, "to be kept"]);
    expect((await read(team, `${UPLOADS}/${id}/links`)).at(-1)).toMatchObject({ _id: kept._id, expiresAt });
  });

  test.each([
    ["erased from there", (team: Team, id: string) => team.call("DELETE", `${TRASH}/${id}`)],
    ["erased for good", (team: Team, id: string) => remove(team, id, "?permanent=true")],
  ])("go once their file is %s, and no other", async (_, eraseOne) => {
    const team = await newTeam(worker);
    const [id, other] = [await put(team), await put(team)];
    const [link, kept] = [await linkOf(team, id), await linkOf(team, other)];
    for (const one of [id, other]) await remove(team, one);
    expect(await rowsOf(team)).toBe(2);
    expect((await eraseOne(team, id)).status).toBe(200);
    expect(await rowsOf(team)).toBe(1);
    await rejected(team, 404, "not_found", () => revoke(team, link._id));
    await restore(team, other);
    expect(await openedBy(team, kept.url)).toBe("to be kept");
  });

  test("count as links of the team and of the file", async ({ team }) => {
    const [id, other] = [await put(team), await put(team)];
    const link = await linkOf(team, id);
    const create = () => team.call("POST", `${UPLOADS}/${other}/links`, { json: {} });
    await DB.prepare("update teams set links = ? where id = ?").bind(MAX_TEAM_LINKS, team.teamId).run();
    await remove(team, id);
    expect((await create()).code).toBe("too_many_links");
    await revoke(team, link._id);
    expect((await create()).status).toBe(200);
    await DB.prepare("update teams set links = 1 where id = ?").bind(team.teamId).run();
    for (let count = 1; count < MAX_LINKS; count++) await create();
    expect((await create()).code).toBe("too_many_links");
    await remove(team, other);
    await restore(team, other);
    expect((await create()).code).toBe("too_many_links");
    expect(await rowsOf(team)).toBe(MAX_LINKS);
  });
});

describe("A restored file", () => {
  test("has everything that it had, with its links, except for signed URLs and deleteAfter", async ({ team }) => {
    const id = await put(team, { ...PROPERTIES, deleteAfter: "2999-01-01T00:00:00.000Z" });
    await team.call("PUT", `${UPLOADS}/${id}/waveform`, { json: PEAKS });
    const vtt = { body: vttOf("a"), headers: { "Content-Type": "text/vtt" } };
    await team.call("PUT", `${UPLOADS}/${id}/transcript`, vtt);
    const link = (await dataOf(team.call("POST", `${UPLOADS}/${id}/links`, { json: {} }))).url;
    const { signedUrl } = (await team.call("GET", `${UPLOADS}/${id}`)).body;
    const links = await read(team, `${UPLOADS}/${id}/links`);
    const before = await metadataOf(team, id);
    expect(before.deleteAfter).toBe("2999-01-01T00:00:00.000Z");
    await remove(team, id);

    const restored = await dataOf(restore(team, id));

    const after = await metadataOf(team, id);
    expect(after).toEqual({ ...before, deleteAfter: null, __v: before.__v + 2, updatedAt: after.updatedAt });
    expect(after).toMatchObject(restored);
    expect(await read(team, `${UPLOADS}/${id}/waveform`)).toEqual(PEAKS);
    expect((await team.call("GET", `${UPLOADS}/${id}/transcript`)).text).toBe(vtt.body);
    for (const query of ["", "name=I", "folder=podcast/2026", "tag=ada", "reference=episode-12", "search=view"]) {
      expect(idsIn(await read(team, `${UPLOADS}?${query}`)), query).toEqual([id]);
    }
    expect(await read(team, "/docs/v1/folders")).toEqual(["podcast"]);
    expect(await trashOf(team)).toEqual([]);
    expect(await read(team, `${UPLOADS}/${id}/links`)).toEqual(links);
    expect([await openedBy(team, link), await openedBy(team, signedUrl)]).toEqual(["to be kept", 404]);
    const url = (await team.call("GET", `${UPLOADS}/${id}`)).body.signedUrl;
    expect(await openedBy(team, url)).toBe("to be kept");
    expect(await openedBy(team, url.replace(/\.1\./, ".2."))).toBe(404);
    const updates = ["file.updated", "file.updated"];
    expect(await typesOf(team, id)).toEqual(["file.uploaded", ...updates, "file.trashed", "file.restored"]);
  });

  test("keeps the results of its processing", async () => {
    const team = await newTeam(startWorker((deps) => ({ ...deps, settings: { ...deps.settings, trashDays: 30 } })));
    const id = await dataOf(team.call("POST", UPLOADS, { body: form("tone.m4a", sample("tone.m4a").bytes) })).then(
      ({ _id }) => _id,
    );
    const before = await processed(team, id);
    expect(before).toMatchObject({ status: "completed", fileType: "audio file" });
    await remove(team, id);
    await restore(team, id);
    expect(await metadataOf(team, id)).toMatchObject({ status: "completed", audio: before.audio, title: before.title });
  });

  test("is restored by one of many requests at once", async ({ team }) => {
    const id = await put(team);
    await remove(team, id);
    expect(tally(await atOnce(30, () => restore(team, id)))).toEqual({ "200": 1, not_in_trash: 29 });
    expect(await typesOf(team, id)).toEqual(["file.uploaded", "file.trashed", "file.restored"]);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 10, trashFiles: 0, trashBytes: 0 });
    const ids = await Promise.all(Array.from({ length: 10 }, () => put(team)));
    await Promise.all(ids.map((one) => remove(team, one)));
    await Promise.all([...ids.map((one) => restore(team, one)), ...ids.map((one) => remove(team, one))]);
    const { trashFiles, files } = await usageOf(team);
    expect([files, trashFiles]).toEqual([11, (await trashOf(team)).length]);
  });

  test("must be in the trash", async ({ team }) => {
    const id = await put(team);
    const erase = (one: string) => team.call("DELETE", `${TRASH}/${one}`);
    for (const act of [restore.bind(null, team), erase]) {
      await rejected(team, 409, "not_in_trash", () => act(id));
      await rejected(team, 404, "not_found", () => act("0193477be8a01f9c3ad5e7b2"));
    }
    const upload = await create(team.call, 10, { filename: "a" }, { token: team.token });
    const unfinished = upload.headers.get("Content-Location")?.split("/").at(-1) ?? "";
    for (const act of [restore.bind(null, team), erase]) {
      await rejected(team, 404, "not_found", () => act(unfinished));
    }
    await remove(team, id);
    expect((await erase(id)).body).toEqual({ message: "File erased." });
    for (const act of [restore.bind(null, team), erase]) await rejected(team, 404, "not_found", () => act(id));
  });
});

describe("A batch", () => {
  test("deletes, restores and erases, with a result for each file", async ({ team }) => {
    const [a, b, held] = [await put(team), await put(team), await put(team)];
    await team.call("PUT", `${UPLOADS}/${held}/hold`, { json: { reason: "r" } });
    const unknown = "0193477be8a01f9c3ad5e7b2";
    const ids = [a, b, held, unknown];
    const codes = async (json: object) => (await batch(team, { ids, ...json })).map((one: Answer) => one.code);
    expect(await codes({ action: "delete" })).toEqual([undefined, undefined, "file_held", "not_found"]);
    expect(idsIn(await trashOf(team)).sort()).toEqual([a, b].sort());
    expect(await codes({ action: "delete" })).toEqual(["not_found", "not_found", "file_held", "not_found"]);
    await restore(team, b);
    expect(await codes({ action: "restore" })).toEqual([undefined, "not_in_trash", "not_in_trash", "not_found"]);
    await remove(team, a);
    expect(await codes({ action: "delete", permanent: true })).toEqual([
      undefined,
      undefined,
      "file_held",
      "not_found",
    ]);
    expect(await usageOf(team)).toMatchObject({ files: 1, trashFiles: 0 });
    const { key } = await newKey(team, { scopes: ["files:write"] });
    const json = { action: "restore", ids };
    await rejected(team, 403, "insufficient_scope", () => team.call("POST", `${UPLOADS}/batch`, { json, token: key }));
  });
});

describe("Batches at the same time", () => {
  test("restore each file once, with one event", async ({ team }) => {
    const ids = await Promise.all(Array.from({ length: 5 }, () => put(team)));
    await batch(team, { action: "delete", ids });
    const results = await Promise.all(Array.from({ length: 10 }, () => batch(team, { action: "restore", ids })));
    for (const [i, id] of ids.entries()) {
      const codes = results.map((result) => result[i].code ?? "restored").sort();
      expect(codes).toEqual([...Array(9).fill("not_in_trash"), "restored"]);
      expect(await typesOf(team, id)).toEqual(["file.uploaded", "file.trashed", "file.restored"]);
    }
    expect(await usageOf(team)).toMatchObject({ files: 5, bytes: 50, trashFiles: 0, trashBytes: 0 });
  });
});

describe("A batch in a Worker whose clock runs", () => {
  let now = Date.now();
  const running = startWorker((deps) => ({
    ...withSettings({ trashDays: 30 })(deps),
    system: { ...deps.system, now: () => now++ },
  }));

  apiTest("finds all of its files deleted", async () => {
    const team = await newTeam(running);
    const ids = [await put(team), await put(team), await put(team)];
    const results = await batch(team, { action: "delete", ids });
    expect(results).toEqual(ids.map((_id) => ({ _id, ok: true, isTrashed: true })));
  });
});

describe("The trash of a contributor", () => {
  test("a contributor lists, restores and erases only these in the trash", async ({ team }) => {
    const [mine, theirs] = [await newMember(team, "contributor"), await newMember(team, "contributor")];
    const [own, own2] = [await put(team, {}, { token: mine.token }), await put(team, {}, { token: mine.token })];
    const other = await put(team, {}, { token: theirs.token });
    const ofTeam = await put(team);
    for (const id of [own, own2, other, ofTeam]) await remove(team, id);
    expect(idsIn(await trashOf(team, mine.token)).sort()).toEqual([own, own2].sort());
    for (const id of [other, ofTeam]) {
      await rejected(team, 404, "not_found", () => restore(team, id, mine.token));
    }
    expect((await restore(team, own, mine.token)).status).toBe(200);
    const usage = await dataOf(team.call("GET", "/docs/v1/usage", { token: mine.token }));
    expect(usage).toMatchObject({ files: 2, bytes: 20, trashFiles: 1, trashBytes: 10 });
    expect(await usageOf(team)).toMatchObject({ files: 4, bytes: 40, trashFiles: 3, trashBytes: 30 });
    const [ids, notFound] = [[own2, other, ofTeam], { ok: false, code: "not_found" }];
    expect(await batch(team, { action: "delete", ids: [other, ofTeam] }, mine.token)).toMatchObject([
      notFound,
      notFound,
    ]);
    const results = await batch(team, { action: "restore", ids }, mine.token);
    expect(results).toMatchObject([{ ok: true }, notFound, notFound]);
    expect(idsIn(await trashOf(team)).sort()).toEqual([other, ofTeam].sort());
    const list = await dataOf(team.call("GET", UPLOADS, { token: mine.token }));
    expect(idsIn(list).sort()).toEqual([own, own2].sort());
  });

  test("a contributor can't erase a file, in the trash or outside, one by one or in a batch", async ({ team }) => {
    const { token } = await newMember(team, "contributor");
    const [id, trashed] = [await put(team, {}, { token }), await put(team, {}, { token })];
    expect((await remove(team, trashed, "", token)).status).toBe(200);
    for (const one of [id, trashed]) {
      await rejected(team, 403, "insufficient_scope", () => remove(team, one, "?permanent=true", token));
      await rejected(team, 403, "insufficient_scope", () => team.call("DELETE", `${TRASH}/${one}`, { token }));
      const json = { action: "delete", permanent: true, ids: [one] };
      await rejected(team, 403, "insufficient_scope", () => team.call("POST", `${UPLOADS}/batch`, { json, token }));
    }
    expect(await batch(team, { action: "delete", permanent: false, ids: [id] }, token)).toMatchObject([{ ok: true }]);
    expect(idsIn(await trashOf(team, token)).sort()).toEqual([id, trashed].sort());
    expect((await team.call("DELETE", `${TRASH}/${id}`)).status).toBe(200);
  });
});

describe("A key without `files:erase`", () => {
  const scopes = ["files:read", "files:write", "files:delete"];

  test("moves files to the trash and back, and erases none", async ({ team }) => {
    const { key: token } = await newKey(team, { scopes });
    const [id, other] = [await put(team, { folder: "a" }), await put(team)];
    expect((await remove(team, id, "", token)).status).toBe(200);
    expect((await restore(team, id, token)).status).toBe(200);
    expect((await team.call("POST", "/docs/v1/folders/delete", { json: { folder: "a" }, token })).status).toBe(200);
    expect(await batch(team, { action: "delete", ids: [other] }, token)).toMatchObject([{ isTrashed: true }]);
    const json = { action: "delete", permanent: true, ids: [id] };
    for (const act of [
      () => team.call("DELETE", `${TRASH}/${id}`, { token }),
      () => remove(team, id, "?permanent=true", token),
      () => team.call("POST", `${UPLOADS}/batch`, { json, token }),
    ])
      await rejected(team, 403, "insufficient_scope", act);
    expect(idsIn(await trashOf(team)).sort()).toEqual([id, other].sort());
    const later = { deleteAfter: "2999-01-01T00:00:00Z" };
    expect((await restore(team, id, token)).status).toBe(200);
    expect((await team.call("PATCH", `${UPLOADS}/${id}`, { json: later, token })).status).toBe(200);
    expect((await team.call("PUT", "/docs/v1/retention", { json: { days: 30 }, token })).status).toBe(200);
  });
});

describe("Without a trash", () => {
  apiTest("whatever deletes files needs `files:erase`, which contributors lack", async ({ team }) => {
    const { token: contributor } = await newMember(team, "contributor");
    const { key: narrowed } = await newKey(team, {
      scopes: ["files:read", "files:upload", "files:write", "files:delete"],
    });
    const { key: eraser } = await newKey(team, { scopes: ["files:delete", "files:erase"] });
    for (const token of [narrowed, contributor]) {
      const id = await put(team, { folder: "a" }, { token });
      const refused = async (act: () => Promise<Answer>) => {
        const { headers } = await rejected(team, 403, "insufficient_scope", act);
        expect(headers.get("WWW-Authenticate")).toContain('scope="files:erase"');
      };
      await refused(() => remove(team, id, "", token));
      await refused(() => remove(team, id, "?permanent=true", token));
      const json = { action: "delete", ids: [id] };
      await refused(() => team.call("POST", `${UPLOADS}/batch`, { json, token }));
      await refused(() => team.call("POST", "/docs/v1/folders/delete", { json: { folder: "a" }, token }));
      const later = { deleteAfter: "2999-01-01T00:00:00Z" };
      await refused(() => team.call("PATCH", `${UPLOADS}/${id}`, { json: later, token }));
      expect((await team.call("PATCH", `${UPLOADS}/${id}`, { json: { deleteAfter: null }, token })).status).toBe(200);
      // An upload that is not complete is no file yet.
      const upload = locationOf(await create(team.call, 2, { filename: "b" }, { token }));
      const [, unfinished = ""] = /([0-9a-f]{24})\.[0-9a-f]{32}$/.exec(upload) ?? [];
      expect((await remove(team, unfinished, "?unfinished=true", token)).status).toBe(200);
      expect((await remove(team, id, "", eraser)).status).toBe(200);
    }
    const days = (token: string) => team.call("PUT", "/docs/v1/retention", { json: { days: 1 }, token });
    await rejected(team, 403, "insufficient_scope", () => days(narrowed));
    expect((await days(eraser)).status).toBe(200);
    await expectNoFiles(team);
  });

  apiTest("a deletion needs `files:erase` also when it is written", async ({ team }) => {
    const { key: token, _id } = await newKey(team, { scopes: ["files:write", "files:delete", "files:erase"] });
    const id = await put(team, { folder: "a" });
    const narrow = () =>
      team.call("PATCH", `/auth/v1/apikeys/${_id}`, { json: { scopes: ["files:write", "files:delete"] } });
    const { call } = startWorker(compose(withoutLimits, beforeWrite(narrow)));
    const answer = await call("DELETE", `${UPLOADS}/${id}`, { token });
    expect([answer.status, answer.code]).toEqual([403, "insufficient_scope"]);
    expect((await metadataOf(team, id))._id).toBe(id);
  });

  apiTest("deletion erases, and the trash is empty", async ({ team }) => {
    for (const query of ["", "?permanent=true", "?permanent=false"]) {
      const id = await put(team);
      expect((await team.call("GET", `${UPLOADS}/${id}`)).body.signedUrl).toContain("X-Amz-Signature");
      await remove(team, id, query);
      await expectNoFiles(team);
      expect(await trashOf(team)).toEqual([]);
      await rejected(team, 404, "not_found", () => restore(team, id));
      expect(await typesOf(team, id)).toEqual(["file.uploaded", "file.deleted"]);
    }
  });
});

describe("A hold", () => {
  const hold = (team: Team, id: string, reason: string, token = team.token) =>
    team.call("PUT", `${UPLOADS}/${id}/hold`, { json: { reason }, token });
  const release = (team: Team, id: string, token = team.token) =>
    team.call("DELETE", `${UPLOADS}/${id}/hold`, { token });

  test("keeps the file from every deletion, and its team", async ({ team }) => {
    const id = await put(team);
    const placed = await dataOf(hold(team, id, "case 1"));
    expect(placed).toEqual({
      reason: "case 1",
      createdAt: expect.any(String),
      createdBy: { keyId: team.keyId, userId: null },
    });
    expect(await metadataOf(team, id)).toMatchObject({ hold: placed, __v: 2 });
    for (const query of ["", "?permanent=true"]) {
      await rejected(team, 409, "file_held", () => remove(team, id, query));
    }
    await rejected(team, 409, "not_in_trash", () => team.call("DELETE", `${TRASH}/${id}`));
    await rejected(team, 403, "forbidden", () => remove(team, id, "?unfinished=true"));
    const teamPath = `/auth/v1/teams/${team.teamId}`;
    const refused = await rejected(team, 409, "file_held", () => team.call("DELETE", teamPath, { token: OPERATOR }));
    expect(refused.body.message).toContain(id);
    expect((await read(team, teamPath)).status).toBe("active");

    expect((await hold(team, id, "case 1")).body.data).toEqual(placed);
    expect((await dataOf(hold(team, id, "case 2"))).reason).toBe("case 2");
    for (const _ of [1, 2]) expect((await release(team, id)).body).toEqual({ message: "Hold released." });
    expect((await metadataOf(team, id)).hold).toBe(null);
    const types = ["file.uploaded", "file.held", "file.held", "file.released"];
    expect(await typesOf(team, id)).toEqual(types);
    expect((await remove(team, id)).status).toBe(200);
    expect((await team.call("DELETE", teamPath, { token: OPERATOR })).status).toBe(200);
  });

  test("is placed by a caller who can delete every file, and released by an admin or a secret key", async ({
    team,
  }) => {
    const id = await put(team);
    const [admin, member, contributor] = [
      await newMember(team, "admin"),
      await newMember(team, "member"),
      await newMember(team, "contributor"),
    ];
    const viewer = await newMember(team, "viewer");
    const { key: writer } = await newKey(team, { scopes: ["files:write", "files:read"] });
    for (const token of [viewer.token, writer]) {
      await rejected(team, 403, "insufficient_scope", () => hold(team, id, "r", token));
      await rejected(team, 403, "insufficient_scope", () => release(team, id, token));
    }
    for (const { token } of [member, admin]) {
      expect((await hold(team, id, "r", token)).status).toBe(200);
      await rejected(team, 403, "forbidden", () => release(team, id, member.token));
      await rejected(team, 409, "file_held", () => remove(team, id, "?permanent=true", token));
      expect((await release(team, id, admin.token)).body).toEqual({ message: "Hold released." });
    }
    const { key: eraser } = await newKey(team, { scopes: ["files:delete"] });
    const session = await openSession(eraser);
    expect((await hold(team, id, "r", session.key)).status).toBe(200);
    await rejected(team, 403, "forbidden", () => release(team, id, session.key));
    expect((await release(team, id, eraser)).status).toBe(200);
    const own = await put(team, {}, { token: contributor.token });
    for (const one of [id, own])
      await rejected(team, 403, "forbidden", () => hold(team, one, "mine", contributor.token));
    expect((await hold(team, own, "the team's")).status).toBe(200);
    await rejected(team, 403, "forbidden", () => release(team, own, contributor.token));
    expect((await release(team, own)).status).toBe(200);
    for (const reason of ["", "x".repeat(201), "a\0b"]) {
      await rejected(team, 400, "invalid_input", () => hold(team, id, reason), ["reason"]);
    }
  });

  test("keeps the file from a deletion that was authorized before it, and from erasure after one that moves it to the trash", async ({
    team,
  }) => {
    const [held, deleted, erased] = [await put(team), await put(team), await put(team)];
    const trashing = compose(withoutLimits, withSettings({ trashDays: 30 }));
    const first = (act: () => Promise<unknown>): Team => {
      const { call } = startWorker(compose(trashing, beforeWrite(act)));
      return { ...team, call: (method, path, options) => call(method, path, { token: team.token, ...options }) };
    };
    const racing = first(() => hold(team, held, "r"));
    expect((await remove(racing, held)).code).toBe("file_held");
    for (const [id, query, code] of [
      [deleted, "", undefined],
      [erased, "?permanent=true", "not_found"],
    ] as const) {
      const racing = first(() => remove(team, id, query));
      expect((await hold(racing, id, "r")).code).toBe(code);
    }
    expect((await metadataOf(team, held)).hold.reason).toBe("r");
    expect(await trashOf(team)).toMatchObject([{ _id: deleted, hold: { reason: "r" } }]);
  });

  test("keeps a file in the trash, which can be restored with it", async ({ team }) => {
    const [id, unheld] = [await put(team, PROPERTIES), await put(team)];
    for (const one of [id, unheld]) await remove(team, one);
    const placed = await dataOf(hold(team, id, "case 1"));
    const shown = (await trashOf(team)).map(({ _id, hold: one }: { _id: string; hold: unknown }) => [_id, one]);
    expect(Object.fromEntries(shown)).toEqual({ [id]: placed, [unheld]: null });
    await rejected(team, 409, "file_held", () => team.call("DELETE", `${TRASH}/${id}`));
    await rejected(team, 409, "file_held", () => remove(team, id, "?permanent=true"));
    for (const query of ["", "?unfinished=true"]) {
      await rejected(team, 404, "not_found", () => remove(team, id, query));
    }
    const results = await batch(team, { action: "delete", permanent: true, ids: [id, unheld] });
    expect(results).toMatchObject([{ code: "file_held" }, { ok: true }]);
    const teamPath = `/auth/v1/teams/${team.teamId}`;
    await rejected(team, 409, "file_held", () => team.call("DELETE", teamPath, { token: OPERATOR }));
    const [, , event] = await eventsOf(team, `subject=${id}`);
    expect(event).toMatchObject({ type: "file.held", data: { status: "pending", reference: "episode-12" } });

    expect((await release(team, id)).status).toBe(200);
    expect((await hold(team, id, "case 2")).status).toBe(200);
    expect((await restore(team, id)).status).toBe(200);
    expect(await metadataOf(team, id)).toMatchObject({ ...PROPERTIES, hold: { reason: "case 2" } });
    await rejected(team, 409, "file_held", () => remove(team, id));
  });

  test("forbids a change of `deleteAfter`, and of nothing else", async ({ team }) => {
    const id = await put(team, { deleteAfter: "2999-01-01T00:00:00Z" });
    await hold(team, id, "r");
    const change = (json: object) => team.call("PATCH", `${UPLOADS}/${id}`, { json });
    for (const deleteAfter of ["2998-01-01T00:00:00Z", null]) {
      await rejected(team, 409, "file_held", () => change({ deleteAfter, name: "b.txt" }));
    }
    expect((await change({ name: "b.txt", folder: "moved" })).status).toBe(200);
    await release(team, id);
    expect((await dataOf(change({ deleteAfter: null }))).deleteAfter).toBe(null);
  });

  test("is counted by the deletion of its folder, for the caller that deletes", async ({ team }) => {
    const { token } = await newMember(team, "contributor");
    const ids = await Promise.all(["a", "a/b", "ab", "a"].map((folder) => put(team, { folder })));
    const own = await put(team, { folder: "a" }, { token });
    for (const id of [...ids.slice(0, 3), own]) await hold(team, id, "r");
    const erase = (by: string) =>
      dataOf(team.call("POST", "/docs/v1/folders/delete", { json: { folder: "a" }, token: by }));
    expect(await erase(token)).toMatchObject({ held: 1 });
    expect(await erase(team.token)).toMatchObject({ isComplete: true, held: 3 });
    expect(idsIn(await trashOf(team))).toEqual([ids[3]]);
    await release(team, own);
    expect(await erase(team.token)).toMatchObject({ held: 2 });
  });

  test("wins or loses as a whole against a deletion at the same time", async ({ team }) => {
    const ids = await Promise.all(Array.from({ length: 8 }, () => put(team)));
    await Promise.all(ids.flatMap((id) => [hold(team, id, "r"), remove(team, id)]));
    const trashed = new Set(idsIn(await trashOf(team)));
    for (const id of ids) {
      const { status, body } = await team.call("GET", `${UPLOADS}/${id}/metadata`);
      if (trashed.has(id)) expect(status).toBe(404);
      else expect(body.data.hold.reason).toBe("r");
    }
  });
});

describe("Retention", () => {
  const set = (team: Team, days: unknown, token = team.token) =>
    team.call("PUT", "/docs/v1/retention", { json: { days }, token });
  const daysOf = async (team: Team) => (await read(team, `/auth/v1/teams/${team.teamId}`)).retentionDays;

  test("is set only by a secret key, an admin or the operator", async ({ team }) => {
    const admin = await newMember(team, "admin");
    expect(await daysOf(team)).toBe(null);
    expect((await set(team, 30)).body.data).toEqual({ days: 30 });
    expect((await set(team, null, admin.token)).body.data).toEqual({ days: null });
    const json = { retentionDays: 7 };
    await team.call("PATCH", `/auth/v1/teams/${team.teamId}`, { json, token: OPERATOR });
    expect(await daysOf(team)).toBe(7);
    for (const token of [(await newMember(team, "member")).token, (await newMember(team, "contributor")).token]) {
      await rejected(team, 403, "forbidden", () => set(team, 1, token));
    }
    const { key: reader } = await newKey(team, { scopes: ["files:read"] });
    await rejected(team, 403, "insufficient_scope", () => set(team, 1, reader));
    for (const days of [0, 3651, 1.5, "1", undefined]) {
      await rejected(team, 400, "invalid_input", () => set(team, days), ["days"]);
    }
    expect(await daysOf(team)).toBe(7);
    const [event] = (await eventsOf(team, "type=team.updated")).slice(-1);
    expect(event.data.fields).toEqual(["retentionDays"]);
  });

  test("`deleteAfter` in an update needs files:delete, but not among the properties of an own upload", async ({
    team,
  }) => {
    const deleteAfter = "2999-01-01T00:00:00Z";
    const { key: writer } = await newKey(team, { scopes: ["files:read", "files:upload", "files:write"] });
    const id = await put(team, { deleteAfter }, { token: writer });
    expect((await metadataOf(team, id)).deleteAfter).toBe("2999-01-01T00:00:00.000Z");
    for (const json of [{ deleteAfter }, { deleteAfter: null }, { name: "b", deleteAfter: "2999-02-01T00:00:00Z" }]) {
      const update = () => team.call("PATCH", `${UPLOADS}/${id}`, { json, token: writer });
      const refused = await rejected(team, 403, "insufficient_scope", update);
      expect(refused.body.message).toContain("files:delete");
    }
    const rename = { json: { name: "b" }, token: writer };
    expect((await team.call("PATCH", `${UPLOADS}/${id}`, rename)).status).toBe(200);
  });

  test("`deleteAfter` must be in the future, in an update, an upload and an upload token", async ({ team }) => {
    const id = await put(team);
    for (const deleteAfter of ["0000-01-01T00:00:00Z", "1999-12-31T00:00:00Z", new Date().toISOString()]) {
      const update = () => team.call("PATCH", `${UPLOADS}/${id}`, { json: { deleteAfter } });
      await rejected(team, 400, "invalid_input", update, ["deleteAfter"]);
      const body = new FormData();
      body.append("properties", JSON.stringify({ deleteAfter }));
      body.append("file", new File(["a"], "a.txt"));
      const upload = () => team.call("POST", UPLOADS, { body });
      await rejected(team, 400, "invalid_input", upload, ["properties.deleteAfter"]);
      const properties = JSON.stringify({ deleteAfter });
      const resumable = () => create(team.call, 1, { filename: "b", properties });
      await rejected(team, 400, "invalid_input", resumable, ["properties.deleteAfter"]);
      const token = () => team.call("POST", "/docs/v1/uploadtokens", { json: { properties: { deleteAfter } } });
      await rejected(team, 400, "invalid_input", token, ["properties.deleteAfter"]);
    }
  });

  test("`deleteAfter` is a property of a file: set, changed and removed", async ({ team }) => {
    const id = await put(team, { deleteAfter: "2999-01-01T00:00:00+01:00" });
    const shown = async () => (await metadataOf(team, id)).deleteAfter;
    expect(await shown()).toBe("2998-12-31T23:00:00.000Z");
    const patchWith = (deleteAfter: unknown) => team.call("PATCH", `${UPLOADS}/${id}`, { json: { deleteAfter } });
    expect((await dataOf(patchWith("2999-06-01T00:00:00Z"))).deleteAfter).toBe("2999-06-01T00:00:00.000Z");
    expect((await read(team, UPLOADS))[0].deleteAfter).toBe("2999-06-01T00:00:00.000Z");
    await rejected(team, 400, "invalid_input", () => patchWith("tomorrow"), ["deleteAfter"]);
    await patchWith(null);
    expect(await shown()).toBe(null);
    const properties = JSON.stringify({ deleteAfter: "2999-01-01T00:00:00Z" });
    const tus = await create(team.call, 1, { filename: "b", properties }, { token: team.token });
    await patch(team.call, locationOf(tus), 0, new Uint8Array(1), { token: team.token });
    expect((await read(team, UPLOADS))[0].deleteAfter).toBe("2999-01-01T00:00:00.000Z");
  });
});
