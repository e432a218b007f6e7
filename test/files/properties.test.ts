import { describe, expect } from "vitest";
import { sample } from "../audio/samples.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  type Answer,
  atOnce,
  call,
  dataOf,
  eventsOf,
  fill,
  form,
  idsIn,
  metadataOf,
  newKey,
  newMember,
  newTeam,
  nextOf,
  processed,
  queueing,
  read,
  readPages,
  rejected,
  snapshot,
  startWorker,
  type Team,
  tally,
  upload,
  usageOf,
  withSettings,
} from "../support/harness.ts";
import { expectSettled } from "../support/invariants.ts";
import { startLimited } from "../support/limits.ts";
import { create, idOf, locationOf, patch as sendBytes } from "../support/tus.ts";
import { World } from "../support/world.ts";

/* Names, folders, references, tags and metadata of files: setting them, finding files by them, and batches. */

const UPLOADS = "/docs/v1/uploads";
const MAX_BATCH_FILES = 100;

const patch = (team: Team, id: string, json: unknown, headers = {}): Promise<Answer> =>
  team.call("PATCH", `${UPLOADS}/${id}`, { json, headers });
function formWith(properties: string, isFirst = true): FormData {
  const data = new FormData();
  if (isFirst) data.append("properties", properties);
  data.append("file", new File(["text"], "a.txt"));
  if (!isFirst) data.append("properties", properties);
  return data;
}
const uploadForm = (team: Team, body: FormData) => team.call("POST", UPLOADS, { body });
const tusUpload = (team: Team, properties: string) => create(team.call, 4, { filename: "a.txt", properties });

/** Uploads a file with properties. @returns its id */
const add = async (team: Team, properties: object): Promise<string> =>
  (await dataOf(uploadForm(team, formWith(JSON.stringify(properties)))))._id;

const listed = async (team: Team, query: Record<string, string>): Promise<string[]> =>
  idsIn(await read(team, `${UPLOADS}?${new URLSearchParams(query)}`));

const historyOf = (team: Team, id: string) => eventsOf(team, `subject=${id}`);

const tagRows = async (team: Team) =>
  (await DB.prepare("select tag, file_id as id from file_tags where team_id = ? order by 1, 2").bind(team.teamId).all())
    .results;

const DEFAULTS = { folder: "", reference: null, tags: [], title: null, artist: null, peaks: null };
// In NFC, with wildcards, quotes, and right-to-left text.
const PROPERTIES = {
  name: '100%_ "Ömer\'s" \u05e9\u05dc\u05d5\u05dd.mp3',
  folder: "Pod%cast/_/\u05e9\u05dc\u05d5\u05dd 'x'/\u{1f600}",
  reference: 'it\'s "50%" _',
  tags: ['"quoted"', "50%_", "Ärger", "\u0645\u0631\u062d\u0628\u0627", "a,b"],
};
const METADATA = { a: 1.5, ключ: ["\u{1f600}", { b: null }], nested: { deep: { "it's": '"' } } };

describe("A file", () => {
  test("has default properties, which are the same in the upload, the list and the metadata", async ({ team }) => {
    const { body } = await uploadForm(team, form("a.txt", "text"));
    expect(body.data).toMatchObject({
      ...DEFAULTS,
      name: "a.txt",
      size: 4,
      mimeType: "text/plain",
      durationSeconds: null,
    });
    expect((await team.call("GET", UPLOADS)).body.data).toEqual([body.data]);
    expect(await metadataOf(team, body.data._id)).toMatchObject({ ...body.data, metadata: {} });
  });

  test("shows the first 200 characters of title and artist of the audio in lists", async () => {
    const team = await newTeam(queueing);
    const { audio } = await processed(team, await upload(team, "tone.flac", sample("tone.flac").bytes));
    const [file] = (await team.call("GET", UPLOADS)).body.data;
    expect([file.title, file.artist]).toEqual([audio.tags.title ?? null, audio.tags.artist ?? null]);
    expect(file.title).not.toBeNull();
    const tags = { title: "t".repeat(201), artist: "a".repeat(200) };
    await DB.prepare("update files set audio = json_set(audio, '$.tags', json(?)) where id = ?")
      .bind(JSON.stringify(tags), file._id)
      .run();
    const shown = { title: "t".repeat(200), artist: tags.artist };
    expect((await team.call("GET", UPLOADS)).body.data).toMatchObject([shown]);
    expect((await metadataOf(team, file._id)).audio.tags).toEqual(tags);
  });

  test.each<[string, (team: Team, properties: string) => Promise<Answer>]>([
    ["a form part before the file", (team, properties) => uploadForm(team, formWith(properties))],
    ["a form part after the file", (team, properties) => uploadForm(team, formWith(properties, false))],
    ["a resumable upload", tusUpload],
  ])("gets its properties from %s", async (_, send) => {
    const team = await newTeam();
    const given = { ...PROPERTIES, folder: PROPERTIES.folder.normalize("NFD"), metadata: { ...METADATA, gone: null } };
    const answer = await send(team, JSON.stringify(given));
    const id = idOf(answer) || answer.id;
    if (answer.status === 201) {
      expect((await sendBytes(team.call, locationOf(answer), 0, Buffer.from("text"))).status).toBe(204);
    }
    expect(await metadataOf(team, id)).toMatchObject({ ...PROPERTIES, originalName: "a.txt", metadata: METADATA });
    expect((await historyOf(team, id)).at(-1).data.reference).toBe(PROPERTIES.reference);
    for (const tag of PROPERTIES.tags) expect(await listed(team, { tag })).toEqual([id]);
    for (const key of ["folder", "reference"] as const)
      expect(await listed(team, { [key]: PROPERTIES[key] })).toEqual([id]);
    expect(await listed(team, { search: "ÖMER" })).toEqual([id]);
  });

  test("names the public key that set its properties as the actor of its event", async ({ team }) => {
    const { id: keyId, key: token } = await newKey(team, { isPublic: true });
    const { id } = await team.call("POST", UPLOADS, { body: formWith('{"reference":"forged"}'), token });
    expect((await metadataOf(team, id)).reference).toBe("forged");
    expect(await historyOf(team, id)).toMatchObject([{ type: "file.uploaded", actor: { kind: "public", keyId } }]);
  });

  test("is updated field by field, with an event that names the fields", async ({ team }) => {
    const id = await upload(team, "a.txt", "text");
    const { status, body, headers } = await patch(team, id, PROPERTIES);
    expect([status, body.data]).toMatchObject([200, { ...PROPERTIES, originalName: "a.txt", __v: 2 }]);
    expect(headers.get("ETag")).toBe('"2"');
    expect(body.data.path).toContain("a.txt");
    await patch(team, id, { metadata: METADATA });
    await patch(team, id, { metadata: { a: null, nested: { deep: null, more: [] } } });
    await patch(team, id, { reference: null, tags: ["b", "b", "Ärger".normalize("NFD")], folder: "" });
    const file = await metadataOf(team, id);
    const metadata = { ключ: METADATA.ключ, nested: { more: [] } };
    expect(file).toMatchObject({ ...DEFAULTS, name: PROPERTIES.name, tags: ["b", "Ärger"], metadata, __v: 5 });
    const updates = (await historyOf(team, id)).filter(({ type }: { type: string }) => type === "file.updated");
    expect(
      updates.map(({ data, subject }: Answer["body"]) => [data.fields.sort(), data.reference, subject.version]),
    ).toEqual([
      [["folder", "name", "reference", "tags"], PROPERTIES.reference, 2],
      [["metadata"], PROPERTIES.reference, 3],
      [["metadata"], PROPERTIES.reference, 4],
      [["folder", "reference", "tags"], null, 5],
    ]);
    expect(await tagRows(team)).toEqual([
      { tag: "b", id },
      { tag: "Ärger", id },
    ]);
    expect(JSON.stringify(updates)).not.toContain("ключ");
  });

  test("is not changed by an update to what it already is", async ({ team }) => {
    const id = await add(team, { ...PROPERTIES, metadata: METADATA });
    const before = await metadataOf(team, id);
    const { status, body } = await patch(team, id, { ...PROPERTIES, metadata: { a: 1.5 } });
    expect([status, body.data.__v]).toEqual([200, before.__v]);
    expect(await metadataOf(team, id)).toEqual(before);
    expect(await historyOf(team, id)).toHaveLength(1);
  });

  test("is updated only in an expected version", async ({ team }) => {
    const id = await upload(team, "a.txt", "text");
    const current = (await team.call("GET", `${UPLOADS}/${id}/metadata`)).headers.get("ETag") ?? "";
    expect((await patch(team, id, { folder: "a" }, { "If-Match": current })).status).toBe(200);
    const late = () => patch(team, id, { folder: "b" }, { "If-Match": current });
    await rejected(team, 412, "version_mismatch", late);
    const unknown = () => patch(team, "0".repeat(24), { folder: "b" }, { "If-Match": current });
    await rejected(team, 404, "not_found", unknown);
  });

  test("is downloaded under its name", async ({ team }) => {
    const id = await upload(team, "a.txt", "text");
    await patch(team, id, { name: "Renamed ü.txt" });
    const { signedUrl } = (await team.call("GET", `${UPLOADS}/${id}`)).body;
    const disposition = new URL(signedUrl).searchParams.get("response-content-disposition");
    expect(disposition).toContain("filename*=UTF-8''Renamed%20%C3%BC.txt");
    const { url } = (await team.call("POST", `${UPLOADS}/${id}/links`, { json: {} })).body.data;
    expect(url).toMatch(/\/Renamed%20%C3%BC\.txt$/);
    const opened = await team.call("GET", new URL(url).pathname);
    expect(opened.headers.get("Content-Disposition")).toBe(disposition);
  });

  test("keeps its processing while it is updated", async () => {
    const world = new World();
    const team = await world.newTeam();
    const id = await world.store(team, "a.txt", "text");
    const bindings = new ProxiedBindings();
    bindings.onCall = async (call) => {
      if (call === "R2 head") expect((await patch(team, id, { tags: ["while"] })).status).toBe(200);
    };
    await world.deliver(id, bindings);
    expect(await expectSettled(team.teamId)).toMatchObject([{ status: "completed", tags: '["while"]' }]);
  });
});

const manyNames = (count: number) => Array.from({ length: count }, (_, i) => `${i}`);
/** A metadata patch that removes these fields, so its size doesn't depend on that of the metadata. */
const removal = (...names: string[]) => Object.fromEntries(names.map((name) => [name, null]));

/** Values of each field. An error names the element of a list. */
const WRONG = Object.entries({
  name: ["", "..", "a/b", "a\\b", " a", "a\u202eb", "a\nb", "\u00e9".repeat(101), null],
  folder: [...["/a", "a/", "a//b", "a/../b", ".", "a\u0001b", "a/\u2066b", null], "\u00e9".repeat(257)],
  reference: ["", "\u{1f600}".repeat(129), "a\u0000", 12],
  tags: ["a", Array.from({ length: 21 }, (_, i) => `${i}`)],
  "tags.0": [["a\ud800"], ["\u{1f600}".repeat(65)]],
  "tags.1": [["a", ""]],
  metadata: [
    ...[[], null, { a: { b: { c: {} } } }, { a: [[[[]]]] }, { a: "\u0000" }, { "\ud800": 1 }],
    { a: "x".repeat(4096) },
    removal("x".repeat(8192)),
    removal(...manyNames(257)),
    { a: removal(...manyNames(256)) },
  ],
  extra: [1],
}).flatMap(([path, values]) => (values as unknown[]).map((value) => [path, value] as const));

describe("Invalid properties", () => {
  test("are rejected by name in an update, and nothing changes", async ({ team }) => {
    const id = await upload(team, "a.txt", "text");
    for (const [path, value] of WRONG) {
      const [field = ""] = path.split(".");
      const paths = field === "extra" ? [path, ""] : [path];
      await rejected(team, 400, "invalid_input", () => patch(team, id, { [field]: value }), paths);
    }
    await rejected(team, 400, "invalid_input", () => patch(team, id, {}), [""]);
  });

  test("are rejected by name in an upload, and nothing is stored", async ({ team }) => {
    for (const [path, value] of WRONG) {
      const properties = JSON.stringify({ [path.split(".")[0] ?? ""]: value });
      const forms = [true, false].map((isFirst) => () => uploadForm(team, formWith(properties, isFirst)));
      for (const send of [...forms, () => tusUpload(team, properties)]) {
        if (Buffer.byteLength(properties) <= 8192) {
          await rejected(team, 400, "invalid_input", send, [`properties.${path}`]);
        }
      }
    }
  });

  test.each([true, false])(
    "are rejected above 8 KiB or without JSON, and nothing is stored, if their form part is first: %s",
    async (isFirst) => {
      const team = await newTeam();
      for (const text of [`{}${" ".repeat(8192)}`, "{", "null", "[]", ""]) {
        await rejected(team, 400, "invalid_input", () => uploadForm(team, formWith(text, isFirst)), ["properties"]);
      }
      expect((await uploadForm(team, formWith(`{}${" ".repeat(8190)}`, isFirst))).status).toBe(200);
    },
  );

  test("are rejected if they are sent twice, before, around or after the file, and nothing is stored", async ({
    team,
  }) => {
    for (const place of [0, 1, 2]) {
      const body = new FormData();
      const parts: [string, string | File][] = [0, 1].map(() => ["properties", "{}"]);
      for (const [name, value] of parts.toSpliced(place, 0, ["file", new File(["text"], "a.txt")]))
        body.append(name, value);
      await rejected(team, 400, "invalid_input", () => uploadForm(team, body), ["properties"]);
    }
  });

  test("include numbers in metadata that JSON can't express", async ({ team }) => {
    const id = await add(team, { metadata: { a: 1 } });
    const body = '{"metadata":{"a":[1e400]}}';
    const headers = { "Content-Type": "application/json" };
    const update = () => team.call("PATCH", `${UPLOADS}/${id}`, { body, headers });
    await rejected(team, 400, "invalid_input", update, ["metadata"]);
    await rejected(team, 400, "invalid_input", () => uploadForm(team, formWith(body)), ["properties.metadata"]);
  });

  test("include metadata that would exceed 4 KiB after merging, but not metadata that shrinks", async ({ team }) => {
    const largest = { a: "x".repeat(4096 - JSON.stringify({ a: "" }).length) };
    expect((await metadataOf(team, await add(team, { metadata: largest }))).metadata).toEqual(largest);
    const over = JSON.stringify({ metadata: { a: `${largest.a}x` } });
    await rejected(team, 400, "invalid_input", () => uploadForm(team, formWith(over)), ["properties.metadata"]);
    const half = "x".repeat(2048);
    const id = await add(team, { metadata: { a: half } });
    await rejected(team, 400, "invalid_input", () => patch(team, id, { metadata: { b: half } }), ["metadata"]);
    expect((await patch(team, id, { metadata: { a: null, b: half, c: { d: null } } })).status).toBe(200);
    expect((await metadataOf(team, id)).metadata).toEqual({ b: half, c: {} });
    const most = { b: null, ...removal(...manyNames(255)) };
    expect((await patch(team, id, { metadata: most })).status).toBe(200);
    expect((await metadataOf(team, id)).metadata).toEqual({ c: {} });
  });
});

describe("Folders", () => {
  const FOLDERS = ["", "b", "a/b/c", "a/b", "a-b", "a b/c", "ab", "A", "a/\u05d0", "\u{1f600}/x"];

  const pagesOf = (team: Team, query = "") => readPages(team, `/docs/v1/folders?${query}`);
  const folders = async (team: Team, query?: string) => (await pagesOf(team, query)).flat();

  test("are listed level by level, by name, as full paths", async () => {
    const [team, other] = await Promise.all([newTeam(), newTeam()]);
    for (const folder of FOLDERS) await add(team, { folder });
    await add(other, { folder: "other" });
    expect(await folders(team)).toEqual(["A", "a", "a b", "a-b", "ab", "b", "\u{1f600}"]);
    expect(await folders(team, "under=a")).toEqual(["a/b", "a/\u05d0"]);
    expect(await folders(team, "under=a/b")).toEqual(["a/b/c"]);
    for (const under of ["a/b/c", "x", "a%25"]) expect(await folders(team, `under=${under}`)).toEqual([]);
    expect((await pagesOf(team, "limit=3")).map(({ length }) => length)).toEqual([3, 3, 1]);
    expect(await folders(team, "limit=3")).toEqual(await folders(team));
    expect(await pagesOf(team, "under=a&limit=1")).toEqual([["a/b"], ["a/\u05d0"]]);
    // All levels, each folder before those in it.
    const all = ["A", "a", "a/b", "a/b/c", "a/\u05d0", "a b", "a b/c", "a-b", "ab", "b", "\u{1f600}", "\u{1f600}/x"];
    for (const limit of [100, 3, 1]) expect(await folders(team, `deep=true&limit=${limit}`)).toEqual(all);
    expect(await folders(team, "deep=true&under=a&limit=1")).toEqual(["a/b", "a/b/c", "a/\u05d0"]);
    expect(await folders(team, "deep=false&under=a")).toEqual(["a/b", "a/\u05d0"]);
  });

  const create = (team: Team, folder: string) => team.call("POST", "/docs/v1/folders", { json: { folder } });
  const move = (team: Team, folder: string, to: string) =>
    team.call("PATCH", "/docs/v1/folders", { json: { folder, to } });
  const remove = (team: Team, folder: string) => team.call("POST", "/docs/v1/folders/delete", { json: { folder } });
  const folderOf = async (team: Team, id: string) => (await metadataOf(team, id)).folder;

  test("a created folder exists without files, next to those of files", async ({ team }) => {
    await add(team, { folder: "a/x" });
    for (const folder of ["a/y/z", "b", "a/x", "b"]) expect((await create(team, folder)).body.data).toEqual({ folder });
    expect(await folders(team)).toEqual(["a", "b"]);
    expect(await folders(team, "under=a")).toEqual(["a/x", "a/y"]);
    expect(await folders(team, "under=a&limit=1")).toEqual(["a/x", "a/y"]);
    expect(await folders(team, "under=a/y")).toEqual(["a/y/z"]);
    for (const folder of ["", "a//b", "..", 1]) {
      await rejected(team, 400, "invalid_input", () => create(team, folder as string), ["folder"]);
    }
  });

  test("can be created up to 10,000 times", async ({ team }) => {
    await DB.prepare("update teams set folders = 9999 where id = ?").bind(team.teamId).run();
    expect((await create(team, "last")).status).toBe(200);
    await rejected(team, 409, "too_many_folders", () => create(team, "one more"));
    expect((await create(team, "last")).status, "one that exists").toBe(200);
  });

  test("are moved with everything in them, and merged with those that exist", async ({ team }) => {
    const ids = [
      await add(team, { folder: "a" }),
      await add(team, { folder: "a/b" }),
      await add(team, { folder: "a-b" }),
    ];
    await create(team, "a/empty");
    await create(team, "c/empty");
    expect((await move(team, "a", "c/d")).body.data).toEqual({ folder: "c/d", isComplete: true });
    expect(await Promise.all(ids.map((id) => folderOf(team, id)))).toEqual(["c/d", "c/d/b", "a-b"]);
    expect(await folders(team)).toEqual(["a-b", "c"]);
    expect(await folders(team, "under=c/d")).toEqual(["c/d/b", "c/d/empty"]);
    await move(team, "c/d", "c");
    expect(await folders(team, "under=c")).toEqual(["c/b", "c/empty"]);
    expect(await listed(team, { under: "c", search: "c/b" })).toEqual([ids[1]]);
    expect((await historyOf(team, ids[0] ?? "")).map(({ type }: { type: string }) => type)).toEqual([
      "file.uploaded",
      "file.updated",
      "file.updated",
    ]);
    expect((await move(team, "nothing", "x")).body.data).toEqual({ folder: "x", isComplete: true });
  });

  test("can't be moved into themselves, or to where a path would be too long", async ({ team }) => {
    await add(team, { folder: `a/${"x".repeat(100)}` });
    for (const to of ["a", "a/b", `${"y".repeat(500)}`, ""]) {
      await rejected(team, 400, "invalid_input", () => move(team, "a", to), ["to"]);
    }
    expect((await move(team, "a", "y".repeat(411))).status).toBe(200);
    await create(team, "b/c");
    await rejected(team, 400, "invalid_input", () => move(team, "b", "y".repeat(511)), ["to"]);
  });

  test("are deleted with everything in them, which has its events", async ({ team }) => {
    const [a, b] = [await add(team, { folder: "a/b", tags: ["t"] }), await add(team, { folder: "ab" })];
    await create(team, "a");
    expect((await remove(team, "a")).body.data).toEqual({ folder: "a", isComplete: true, held: 0 });
    expect(await folders(team)).toEqual(["ab"]);
    expect(idsIn(await read(team, UPLOADS))).toEqual([b]);
    expect((await historyOf(team, a)).map(({ type }: { type: string }) => type)).toEqual([
      "file.uploaded",
      "file.deleted",
    ]);
    expect(await tagRows(team)).toEqual([]);
    expect((await remove(team, "a")).body.data).toEqual({ folder: "a", isComplete: true, held: 0 });
  });

  test("can be named `null`, and are moved and deleted like any other", async ({ team }) => {
    const [id] = [await add(team, { folder: "null" }), await add(team, { folder: "null/a" })];
    await dataOf(move(team, "null", "b"));
    expect(await folders(team)).toEqual(["b"]);
    await dataOf(move(team, "b", "null"));
    expect(await listed(team, { folder: "null" })).toEqual([id]);
    await dataOf(remove(team, "null"));
    expect(await folders(team)).toEqual([]);
  });

  test("a contributor has its own folders, with only its files, and other callers see those, too", async () => {
    // Without a trash, a contributor deletes nothing.
    const team = await newTeam(startWorker(withSettings({ trashDays: 1 })));
    const { token } = await newMember(team, "contributor");
    const own: Team = {
      ...team,
      token,
      call: (method, path, options) => team.call(method, path, { token, ...options }),
    };
    const [mine, theirs] = [await add(own, { folder: "shared" }), await add(team, { folder: "shared" })];
    await create(own, "mine");
    await create(team, "theirs");
    expect(await folders(own)).toEqual(["mine", "shared"]);
    expect(await folders(team)).toEqual(["mine", "shared", "theirs"]);
    await move(own, "shared", "moved");
    expect([await folderOf(team, mine), await folderOf(team, theirs)]).toEqual(["moved", "shared"]);
    await remove(own, "theirs");
    await remove(own, "moved");
    await remove(own, "shared");
    expect(idsIn(await read(team, UPLOADS))).toEqual([theirs]);
    expect(await folders(team)).toEqual(["mine", "shared", "theirs"]);
    expect(await folders(own)).toEqual(["mine"]);
    await remove(team, "mine");
    for (const caller of [team, own]) expect(await folders(caller)).not.toContain("mine");
  });

  test("are at most 1,000 that a contributor creates, and go with the user", async ({ team }) => {
    const { id, token } = await newMember(team, "contributor");
    const create = (folder: string, caller = token) =>
      team.call("POST", "/docs/v1/folders", { json: { folder }, token: caller });
    const ofTeam = () => DB.prepare("select folders from teams where id = ?").bind(team.teamId).first("folders");
    await Promise.all(Array.from({ length: 5 }, (_, i) => create(`own/${i}`)));
    expect((await create("of the team", team.token)).status).toBe(200);
    await DB.prepare("update users set folders = 999 where id = ?").bind(id).run();
    expect((await create("last")).status).toBe(200);
    const refused = await rejected(team, 409, "too_many_folders", () => create("more"));
    expect(refused.body.message).toContain("1,000 folders");
    expect((await create("last")).status).toBe(200);
    expect((await create("more", team.token)).status).toBe(200);
    expect(await ofTeam()).toBe(8);
    expect((await team.call("DELETE", `/auth/v1/users/${id}`)).status).toBe(200);
    expect(await folders(team)).toEqual(["more", "of the team"]);
    expect(await ofTeam()).toBe(2);
  });

  test("disappear with their last file", async ({ team }) => {
    const [first, second] = [await add(team, { folder: "a/b" }), await add(team, { folder: "c" })];
    await patch(team, first, { folder: "d" });
    await team.call("DELETE", `${UPLOADS}/${second}`);
    expect(await folders(team)).toEqual(["d"]);
  });

  test("reject a path that no folder can have, and a cursor of other folders", async ({ team }) => {
    for (const folder of ["a/1", "a/2", "b/1", "b/2"]) await add(team, { folder });
    for (const under of ["..", "a/", "a//b", "%01"]) {
      await rejected(team, 400, "invalid_input", () => team.call("GET", `/docs/v1/folders?under=${under}`), ["under"]);
    }
    const link = new URL(nextOf(await team.call("GET", "/docs/v1/folders?limit=1&under=a")) ?? "");
    link.searchParams.set("under", "b");
    await rejected(team, 400, "invalid_input", () => team.call("GET", link.pathname + link.search), ["cursor"]);
  });
});

describe("Names", () => {
  test("are sorted, and found by a prefix, without accents and in any case", async ({ team }) => {
    const names = ["Äpfel", "apfelsine", "Apfel", "zebra", "Éclair", "eclair 2", "Straße", "STRASSE 2", "ǅ"];
    for (const name of names) await add(team, { name });
    const namesBy = async (query: Record<string, string>) =>
      (await read(team, `${UPLOADS}?${new URLSearchParams(query)}`)).map(({ name }: { name: string }) => name);
    const sorted = ["Äpfel", "Apfel", "apfelsine", "ǅ", "Éclair", "eclair 2", "Straße", "STRASSE 2", "zebra"];
    expect(await namesBy({ sort: "name" })).toEqual(sorted);
    expect(await namesBy({ name: "ÄPFEL" })).toEqual(["Äpfel", "Apfel", "apfelsine"]);
    expect(await namesBy({ name: "strasse" })).toEqual(["Straße", "STRASSE 2"]);
  });

  test.each(["ß", "é", "가", "ﷺ", "\u0301", "x"])(
    "of the longest length, of %s, are found by themselves",
    async (one) => {
      const team = await newTeam();
      const name = `a${one.repeat(Math.floor(199 / Buffer.byteLength(one)))}`;
      const id = await add(team, { name });
      expect(await listed(team, { name })).toEqual([id]);
      expect(await listed(team, { name: name.toUpperCase().slice(0, 200) })).toEqual([id]);
      expect(await listed(team, { search: name })).toEqual([id]);
    },
  );

  test("that differ only in case or accents are two folders and two tags", async ({ team }) => {
    const [one, other] = [
      await add(team, { folder: "Café", tags: ["Café"] }),
      await add(team, { folder: "cafe", tags: ["cafe"] }),
    ];
    expect(await listed(team, { folder: "Café" })).toEqual([one]);
    expect(await listed(team, { tag: "cafe" })).toEqual([other]);
    expect(await read(team, "/docs/v1/folders")).toEqual(["Café", "cafe"]);
  });
});

describe("The list of tags", () => {
  const TAGS = "/docs/v1/tags";
  const tagsOf = async (team: Team, query = "", token = team.token) =>
    (await readPages({ call: (method, path) => team.call(method, path, { token }) }, `${TAGS}${query}`))
      .flat()
      .map(({ tag }: { tag: string }) => tag);

  test("has each tag of the files once, in the order of names, on pages of any size", async ({ team }) => {
    const ids = [
      await add(team, { tags: ["b", "Über", "2", "a,b"] }),
      await add(team, { tags: ["b", "uber", "Zebra", "10"] }),
      await add(team, { tags: ["é", 'a"b', "%"] }),
    ];
    const sorted = ["%", "10", "2", 'a"b', "a,b", "b", "é", "uber", "Über", "Zebra"];
    expect(await tagsOf(team)).toEqual(sorted);
    for (const limit of [1, 3, 10]) expect(await tagsOf(team, `?limit=${limit}`)).toEqual(sorted);
    const { body } = await team.call("GET", `${TAGS}?limit=1`);
    expect(body.data).toEqual([{ tag: "%" }]);
    await patch(team, ids[2] ?? "", { tags: ["é"] });
    await team.call("DELETE", `${UPLOADS}/${ids[1]}`);
    expect(await tagsOf(team)).toEqual(["2", "a,b", "b", "é", "Über"]);
    expect(await tagsOf(await newTeam())).toEqual([]);
  });

  test("with a prefix has those that begin with it, in any case and without accents", async ({ team }) => {
    await add(team, { tags: ["Über", "uber", "ubahn", "u", "v", "a%", "ab"] });
    expect(await tagsOf(team, "?prefix=UB")).toEqual(["ubahn", "uber", "Über"]);
    expect(await tagsOf(team, "?prefix=UB&limit=1")).toEqual(["ubahn", "uber", "Über"]);
    expect(await tagsOf(team, "?prefix=a%25")).toEqual(["a%"]);
    expect(await tagsOf(team, "?prefix=w")).toEqual([]);
    const { searchParams } = new URL(nextOf(await team.call("GET", `${TAGS}?prefix=ub&limit=1`)) ?? "");
    const other = `${TAGS}?prefix=u&cursor=${searchParams.get("cursor")}`;
    await rejected(team, 400, "invalid_input", () => team.call("GET", other), ["cursor"]);
  });

  test("of a contributor has those of the own files", async ({ team }) => {
    const { token } = await newMember(team, "contributor");
    const body = () => formWith(JSON.stringify({ tags: ["mine", "both"] }));
    const id = (await dataOf(team.call("POST", UPLOADS, { body: body(), token })))._id;
    await add(team, { tags: ["theirs", "both"] });
    expect(await tagsOf(team, "", token)).toEqual(["both", "mine"]);
    expect(await tagsOf(team)).toEqual(["both", "mine", "theirs"]);
    const json = { action: "untag", ids: [id], tags: ["mine"] };
    await team.call("POST", `${UPLOADS}/batch`, { json, token });
    expect(await tagsOf(team, "?limit=1", token)).toEqual(["both"]);
  });
});

describe("A search", () => {
  const UPPER = { folder: "Night Signals/Season 2", reference: "EP-12", tags: ["Raw", "Ärger", 'a"b\\c', "A,B"] };
  /** The searches that find the file. */
  const finding = async (team: Team, searches: string[]) => {
    const lists = await Promise.all(searches.map((search) => listed(team, { search })));
    return searches.filter((_, i) => lists[i]?.length === 1);
  };

  test("finds name, folder, reference and tags, in any case, as the upload set them", async ({ team }) => {
    await uploadForm(team, formWith(JSON.stringify({ ...UPPER, name: "Take.wav" })));
    const found = ["tAKE", "night", "signals/season", "ep-12", "RAW", "ÄRGER", 'A"B\\C', "a,b"];
    expect(await finding(team, found)).toEqual(found);
    expect(await finding(team, ["takeN", "12raw", 'raw",', '":"', '","', "folder", "tags", "null"])).toEqual([]);
  });

  test.each([
    ["ΣΊΣΥΦΟΣ", ["σίσυφος", "ΣΙΣΥΦΟΣ", "σισυφοσ"], ["σίσυφα"]],
    ["Straße", ["STRASSE", "straße", "STRAẞE", "ss"], ["strase"]],
    ["İstanbul", ["ISTANBUL", "istanbul", "ıstanbul"], ["estanbul"]],
    ["cafe\u0301 Ömer", ["café", "CAFE", "omer", "e\u0301"], ["caff"]],
    ["Йод", ["йод", "ИОД"], ["од1"]],
    ["한국", ["한", "한국".normalize("NFD")], ["하", "그"]],
    ["ｶﾞｷﾞ ﬁn", ["ガギ", "FIN"], ["サ"]],
  ])("of %s finds it by %j in name, folder, reference and tag, and not by %j", async (text, found, others) => {
    for (const properties of [{ name: text }, { folder: text }, { reference: text }, { tags: [text] }]) {
      const team = await newTeam();
      await uploadForm(team, formWith(JSON.stringify(properties)));
      expect(await finding(team, [...found, ...others]), JSON.stringify(properties)).toEqual(found);
    }
  });

  test("has one to ten words: marks alone are none", async ({ team }) => {
    await rejected(team, 400, "invalid_input", () => team.call("GET", `${UPLOADS}?search=%CC%81`), ["search"]);
  });

  test("finds the files that have every word somewhere, in any order", async ({ team }) => {
    await uploadForm(team, formWith(JSON.stringify({ ...UPPER, name: "Take one.wav" })));
    const found = ["wav take", "one take", "signals ep-12 RAW take", "  ärger\u00a0\u3000night  ", "raw raw"];
    expect(await finding(team, found)).toEqual(found);
    expect(await finding(team, ["take two", "raw takeone", "night day"])).toEqual([]);
    for (const search of [" ", "1 2 3 4 5 6 7 8 9 10 11"]) {
      const query = new URLSearchParams({ search });
      await rejected(team, 400, "invalid_input", () => team.call("GET", `${UPLOADS}?${query}`), ["search"]);
    }
    expect(await listed(team, { search: "1 2 3 4 5 6 7 8 9 10 1" })).toEqual([]);
  });

  test("finds what a file has after an update, and no longer what it had", async ({ team }) => {
    const id = await upload(team, "a.txt", "text");
    const terms = ["night", "ep-12", "raw", "ärger", "b.txt", "a.txt", "later"];
    const update = (json: object) => dataOf(team.call("PATCH", `${UPLOADS}/${id}`, { json }));
    expect(await finding(team, terms)).toEqual(["a.txt"]);
    await update(UPPER);
    expect(await finding(team, terms)).toEqual(["night", "ep-12", "raw", "ärger", "a.txt"]);
    await update({ name: "b.txt" });
    expect(await finding(team, terms)).toEqual(["night", "ep-12", "raw", "ärger", "b.txt"]);
    await update({ folder: "Later", reference: null });
    expect(await finding(team, terms)).toEqual(["raw", "ärger", "b.txt", "later"]);
    await update({ tags: ["Later"], folder: "" });
    expect(await finding(team, terms)).toEqual(["b.txt", "later"]);
    await update({ tags: [] });
    expect(await finding(team, [...terms, "{}"])).toEqual(["b.txt"]);
  });

  test("batches keep the order of tags, also of those that are numbers", async ({ team }) => {
    const id = await add(team, { tags: ["b", "2", "__proto__", 'q"\\'] });
    const batch = (action: string, tags: string[]) =>
      dataOf(team.call("POST", `${UPLOADS}/batch`, { json: { action, ids: [id], tags } }));
    await batch("tag", ["1", "b", "a"]);
    expect((await metadataOf(team, id)).tags).toEqual(["b", "2", "__proto__", 'q"\\', "1", "a"]);
    await batch("untag", ["2", 'q"\\']);
    expect((await metadataOf(team, id)).tags).toEqual(["b", "__proto__", "1", "a"]);
    expect(await finding(team, ["__PROTO__", "1", "A", "2x"])).toEqual(["__PROTO__", "1", "A"]);
  });

  test("finds the tags that batches leave, also if two differ only in case", async ({ team }) => {
    const id = await upload(team, "a.txt", "text");
    const batch = (action: string, tags: string[]) =>
      dataOf(team.call("POST", `${UPLOADS}/batch`, { json: { action, ids: [id], tags } }));
    await batch("tag", ["Raw", "raw", "Final"]);
    expect(await finding(team, ["RAW", "FINAL"])).toEqual(["RAW", "FINAL"]);
    await batch("untag", ["Raw", "Final"]);
    expect(await finding(team, ["RAW", "FINAL"])).toEqual(["RAW"]);
    await batch("untag", ["raw"]);
    expect(await finding(team, ["RAW", "FINAL"])).toEqual([]);
  });

  test("finds title and artist of the audio once they are known, and until the file is processed again", async () => {
    const team = await newTeam(queueing);
    const { audio, _id } = await processed(team, await upload(team, "x.flac", sample("tone.flac").bytes));
    expect(audio.tags.title).toBe("Übergröße");
    const search = "ÜBERGRÖ";
    expect(await listed(team, { search })).toEqual([_id]);
    await team.call("PATCH", `${UPLOADS}/${_id}`, { json: { tags: ["a"] } });
    expect(await listed(team, { search })).toEqual([_id]);
    // This worker sends no messages.
    await call("POST", `${UPLOADS}/${_id}/reprocess`, { token: team.token });
    expect(await listed(team, { search })).toEqual([]);
    expect(await listed(team, { search: "x.flac" })).toEqual([_id]);
  });

  test("continues by Link after 2,440 names", async ({ team }) => {
    await fill(team, "files", 2600);
    await DB.prepare("update files set name_key = original_name where team_id = ?").bind(team.teamId).run();
    const id = await upload(team, "zz needle.txt", "text");
    const pages = await readPages(team, `${UPLOADS}?search=NEEDLE`);
    expect(pages.map(idsIn)).toEqual([[], [id]]);
  });

  test("is a heavy request: a team has 120 a minute, whatever its tokens", async () => {
    const team = await newTeam(startLimited());
    const { key: second } = await newKey(team);
    const search = (token?: string) => team.call("GET", `${UPLOADS}?search=a`, token ? { token } : {});
    expect(tally(await atOnce(120, () => search()))).toEqual({ 200: 120 });
    expect((await search(second)).code).toBe("rate_limited");
    expect((await team.call("GET", UPLOADS)).status).toBe(200);
  });
});

describe("A batch", () => {
  const batch = (team: Team, json: object): Promise<Answer> => team.call("POST", `${UPLOADS}/batch`, { json });
  const results = async (team: Team, json: object) =>
    (await dataOf(batch(team, json))).map(({ _id, ok, code }: Answer["body"]) => [_id, ok, ...(code ? [code] : [])]);
  const unknown = "0".repeat(24);

  test("moves, tags and untags files once, with one event for each changed file", async () => {
    const [team, other] = await Promise.all([newTeam(), newTeam()]);
    const [a, b, foreign] = [
      await add(team, { tags: ["x"] }),
      await add(team, { folder: "f" }),
      await upload(other, "c", "c"),
    ];
    const ids = [b, unknown, a, "malformed", foreign];
    const expected = [
      [b, true],
      [unknown, false, "not_found"],
      [a, true],
      ["malformed", false, "not_found"],
      [foreign, false, "not_found"],
    ];
    for (let times = 0; times < 2; times++) {
      expect(await results(team, { action: "move", ids, folder: "f" })).toEqual(expected);
      expect(await results(team, { action: "tag", ids, tags: ["x", "y"] })).toEqual(expected);
    }
    expect(await listed(team, { folder: "f", tag: "y" })).toEqual([b, a]);
    expect(await metadataOf(team, a)).toMatchObject({ tags: ["x", "y"], __v: 3 });
    for (let times = 0; times < 2; times++) {
      expect(await results(team, { action: "untag", ids, tags: ["x", "z"] })).toEqual(expected);
    }
    expect(await tagRows(team)).toEqual([a, b].sort().map((id) => ({ tag: "y", id })));
    const fields = async (id: string) =>
      (await historyOf(team, id)).map(({ data }: Answer["body"]) => data.fields?.join());
    expect(await fields(a)).toEqual([undefined, "folder", "tags", "tags"]);
    expect(await fields(b)).toEqual([undefined, "tags", "tags"]);
    expect(await metadataOf(other, foreign)).toMatchObject(DEFAULTS);
  });

  test("sets tags that combined filters compare as a whole", async ({ team }) => {
    const odd = ['a,"b"', '["b"]', 'b"', '"b', "b\\", '\\"b"', ',"b', '["b'];
    const [own, batched] = [await add(team, { tags: [...odd, "b"] }), await add(team, { tags: odd })];
    const named = (tag: string) => listed(team, { tag, sort: "name" });
    expect(await named("b")).toEqual([own]);
    expect(await results(team, { action: "tag", ids: [batched], tags: ["b"] })).toEqual([[batched, true]]);
    for (const tag of [...odd, "b"]) expect((await named(tag)).sort(), tag).toEqual([own, batched].sort());
    expect(await named("a")).toEqual([]);
  });

  test("does not exceed 20 tags of a file, and leaves such a file unchanged", async ({ team }) => {
    const tags = Array.from({ length: 20 }, (_, i) => `tag ${i}`);
    const [full, free] = [await add(team, { tags }), await add(team, {})];
    expect(await results(team, { action: "tag", ids: [full, free], tags: ["new", "tag 1"] })).toEqual([
      [full, false, "too_many_tags"],
      [free, true],
    ]);
    expect((await metadataOf(team, full)).tags).toEqual(tags);
  });

  test("deletes a hundred files with their bytes, tags and rows", async ({ team }) => {
    const ids = await Promise.all(
      Array.from({ length: MAX_BATCH_FILES }, (_, i) =>
        i % 2 ? add(team, { tags: ["t"] }) : upload(team, "a.txt", "a"),
      ),
    );
    const unfinished = idOf(await create(team.call, 9));
    expect(await results(team, { action: "delete", ids })).toEqual(ids.map((id) => [id, true]));
    expect(await results(team, { action: "delete", ids: [unfinished] })).toEqual([[unfinished, true]]);
    expect(await tagRows(team)).toEqual([]);
    expect(await snapshot(team.teamId)).toMatchObject({ objects: [] });
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
    expect(await listed(team, {})).toEqual([]);
    expect(await results(team, { action: "delete", ids: ids.slice(0, 1) })).toEqual([[ids[0], false, "not_found"]]);
    const deleted = await DB.prepare("select count(*) as n from events where team_id = ? and type = 'file.deleted'")
      .bind(team.teamId)
      .first("n");
    expect(deleted).toBe(MAX_BATCH_FILES);
  });

  test("needs files:delete besides files:write for a deletion", async ({ team }) => {
    const id = await upload(team, "a.txt", "a");
    const { key: token } = await newKey(team, { scopes: ["files:write"] });
    const as = (json: object) => team.call("POST", `${UPLOADS}/batch`, { token, json });
    const { headers } = await rejected(team, 403, "insufficient_scope", () => as({ action: "delete", ids: [id] }));
    expect(headers.get("WWW-Authenticate")).toContain('scope="files:delete"');
    expect((await as({ action: "tag", ids: [id], tags: ["a"] })).status).toBe(200);
  });

  test.each<[object, string[]]>([
    [{ action: "move", ids: [] }, ["ids", "folder"]],
    [{ action: "move", ids: [unknown], folder: ".." }, ["folder"]],
    [{ action: "tag", ids: [unknown] }, ["tags"]],
    [{ action: "tag", ids: [unknown], tags: [] }, ["tags"]],
    [{ action: "untag", ids: [unknown], tags: ["a\n"] }, ["tags.0"]],
    [{ action: "delete", ids: [unknown, unknown] }, ["ids"]],
    [{ action: "delete", ids: Array.from({ length: 101 }, (_, i) => `${i}`) }, ["ids"]],
    [{ action: "delete", ids: [unknown], folder: "a" }, ["folder"]],
    [{ action: "erase", ids: [unknown] }, ["action"]],
  ])("rejects %j by name", async (json, paths) => {
    const team = await newTeam();
    await rejected(team, 400, "invalid_input", () => batch(team, json), paths);
  });
});
