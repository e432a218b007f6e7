import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { MAX_BATCH_FILES } from "../../src/domain/files/batches.ts";
import {
  MAX_FOLDER_BYTES,
  MAX_METADATA_BYTES,
  MAX_METADATA_PATCH_BYTES,
  MAX_METADATA_PATCH_NAMES,
  MAX_REFERENCE_LENGTH,
  MAX_TAG_LENGTH,
  MAX_TAGS,
} from "../../src/domain/files/properties.ts";
import {
  type Answer,
  fill,
  form,
  newTeam,
  processed,
  queueing,
  rejected,
  startWorker,
  type Team,
  upload,
  withinOneMinute,
  withoutJobs,
} from "../support/harness.ts";
import { create } from "../support/tus.ts";

/* Names, folders, references, tags and metadata of files: setting them, finding files by them, and batches. */

const UPLOADS = "/docs/v1/uploads";

const patch = (team: Team, id: string, json: unknown, headers = {}): Promise<Answer> =>
  team.call("PATCH", `${UPLOADS}/${id}`, { json, headers });
const metadataOf = async (team: Team, id: string) => (await team.call("GET", `${UPLOADS}/${id}/metadata`)).body.data;

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
async function add(team: Team, properties: object): Promise<string> {
  const { status, id, text } = await uploadForm(team, formWith(JSON.stringify(properties)));
  expect(status, text).toBe(200);
  return id;
}

async function listed(team: Team, query: Record<string, string>): Promise<string[]> {
  const { status, body, text } = await team.call("GET", `${UPLOADS}?${new URLSearchParams(query)}`);
  expect(status, text).toBe(200);
  return body.data.map(({ _id }: { _id: string }) => _id);
}

async function eventsOf(team: Team, id: string) {
  const { body } = await team.call("GET", "/auth/v1/events?order=asc&limit=100");
  return body.data.filter(({ subject }: { subject: { id: string } }) => subject.id === id);
}

const tagRows = async (team: Team) =>
  (
    await env.DB.prepare("select tag, file_id as id from file_tags where team_id = ? order by 1, 2")
      .bind(team.teamId)
      .all()
  ).results;

const DEFAULTS = { folder: "", reference: null, tags: [], title: null, artist: null };
// In NFC, with wildcards, quotes, and right-to-left text.
const PROPERTIES = {
  name: '100%_ "Ömer\'s" \u05e9\u05dc\u05d5\u05dd.mp3',
  folder: "Pod%cast/_/\u05e9\u05dc\u05d5\u05dd 'x'/\u{1f600}",
  reference: 'it\'s "50%" _',
  tags: ['"quoted"', "50%_", "Ärger", "\u0645\u0631\u062d\u0628\u0627", "a,b"],
};
const METADATA = { a: 1.5, ключ: ["\u{1f600}", { b: null }], nested: { deep: { "it's": '"' } } };

describe("A file", () => {
  test("has default properties, which are the same in the upload, the list and the metadata", async () => {
    const team = await newTeam();
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

  test("shows title and artist of the audio in lists", async () => {
    const team = await newTeam(queueing);
    const { sample } = await import("../audio/samples.ts");
    const { audio } = await processed(team, await upload(team, "tone.flac", sample("tone.flac").bytes));
    const [file] = (await team.call("GET", UPLOADS)).body.data;
    expect([file.title, file.artist]).toEqual([audio.tags.title ?? null, audio.tags.artist ?? null]);
    expect(file.title).not.toBeNull();
  });

  test.each<[string, (team: Team, properties: string) => Promise<Answer>]>([
    ["a form upload", (team, properties) => uploadForm(team, formWith(properties))],
    ["a resumable upload", tusUpload],
  ])("gets its properties from %s", async (_, send) => {
    const team = await newTeam();
    const given = { ...PROPERTIES, folder: PROPERTIES.folder.normalize("NFD"), metadata: { ...METADATA, gone: null } };
    const answer = await send(team, JSON.stringify(given));
    const location = answer.headers.get("Content-Location") ?? answer.headers.get("Location") ?? "";
    const id = location.split("/").at(-1) ?? "";
    if (answer.status === 201) {
      const headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
      };
      const { status } = await team.call("PATCH", answer.headers.get("Location") ?? "", { body: "text", headers });
      expect(status).toBe(204);
    }
    expect(await metadataOf(team, id)).toMatchObject({ ...PROPERTIES, originalName: "a.txt", metadata: METADATA });
    expect((await eventsOf(team, id)).at(-1).data.reference).toBe(PROPERTIES.reference);
    for (const tag of PROPERTIES.tags) expect(await listed(team, { tag })).toEqual([id]);
    for (const key of ["folder", "reference"] as const)
      expect(await listed(team, { [key]: PROPERTIES[key] })).toEqual([id]);
    expect(await listed(team, { search: "ÖMER" })).toEqual([id]);
  });

  test("tells by the actor of its event that a public key set its properties", async () => {
    const team = await newTeam();
    const { id: keyId, key: token } = (
      await team.call("POST", "/auth/v1/apikeys", { json: { name: "page", isPublic: true } })
    ).body.data;
    const { id } = await team.call("POST", UPLOADS, { body: formWith('{"reference":"forged"}'), token });
    expect((await metadataOf(team, id)).reference).toBe("forged");
    const [uploaded] = await eventsOf(team, id);
    expect([uploaded.type, uploaded.actor]).toMatchObject(["file.uploaded", { kind: "public", keyId }]);
  });

  test("is updated field by field, with an event that names the fields", async () => {
    const team = await newTeam();
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
    const updates = (await eventsOf(team, id)).filter(({ type }: { type: string }) => type === "file.updated");
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

  test("is not changed by an update to what it already is", async () => {
    const team = await newTeam();
    const id = await add(team, { ...PROPERTIES, metadata: METADATA });
    const before = await metadataOf(team, id);
    const { status, body } = await patch(team, id, { ...PROPERTIES, metadata: { a: 1.5 } });
    expect([status, body.data.__v]).toEqual([200, before.__v]);
    expect(await metadataOf(team, id)).toEqual(before);
    expect(await eventsOf(team, id)).toHaveLength(1);
  });

  test("is updated only in an expected version", async () => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "text");
    const current = (await team.call("GET", `${UPLOADS}/${id}/metadata`)).headers.get("ETag") ?? "";
    expect((await patch(team, id, { folder: "a" }, { "If-Match": current })).status).toBe(200);
    const late = () => patch(team, id, { folder: "b" }, { "If-Match": current });
    await rejected(team, 412, "version_mismatch", late);
    const unknown = () => patch(team, "0".repeat(24), { folder: "b" }, { "If-Match": current });
    await rejected(team, 404, "not_found", unknown);
  });

  test("is downloaded under its name", async () => {
    const team = await newTeam();
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
    const { World, expectSettled } = await import("../support/world.ts");
    const world = new World();
    const team = await world.newTeam();
    const id = await world.store(team, "a.txt", "text");
    const { ProxiedBindings } = await import("../support/bindings.ts");
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

const WRONG: [string, unknown][] = [
  ["name", ""],
  ["name", ".."],
  ["name", "a/b"],
  ["name", "a\\b"],
  ["name", " a"],
  ["name", "a\u202eb"],
  ["name", "a\nb"],
  ["name", "\u00e9".repeat(101)],
  ["name", null],
  ["folder", "/a"],
  ["folder", "a/"],
  ["folder", "a//b"],
  ["folder", "a/../b"],
  ["folder", "."],
  ["folder", "a\u0001b"],
  ["folder", "a/\u2066b"],
  ["folder", "\u00e9".repeat(MAX_FOLDER_BYTES / 2 + 1)],
  ["folder", null],
  ["reference", ""],
  ["reference", "\u{1f600}".repeat(MAX_REFERENCE_LENGTH + 1)],
  ["reference", "a\u0000"],
  ["reference", 12],
  ["tags", "a"],
  ["tags", Array.from({ length: MAX_TAGS + 1 }, (_, i) => `${i}`)],
  ["tags.1", ["a", ""]],
  ["tags.0", ["a\ud800"]],
  ["tags.0", ["\u{1f600}".repeat(MAX_TAG_LENGTH + 1)]],
  ["metadata", []],
  ["metadata", null],
  ["metadata", { a: { b: { c: {} } } }],
  ["metadata", { a: [[[[]]]] }],
  ["metadata", { a: "\u0000" }],
  ["metadata", { "\ud800": 1 }],
  ["metadata", { a: "x".repeat(MAX_METADATA_BYTES) }],
  ["metadata", removal("x".repeat(MAX_METADATA_PATCH_BYTES))],
  ["metadata", removal(...manyNames(MAX_METADATA_PATCH_NAMES + 1))],
  ["metadata", { a: removal(...manyNames(MAX_METADATA_PATCH_NAMES)) }],
  ["extra", 1],
];

describe("Invalid properties", () => {
  test("are rejected by name in an update, and nothing changes", async () => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "text");
    for (const [path, value] of WRONG) {
      const [field = ""] = path.split(".");
      const paths = field === "extra" ? [path, ""] : [path];
      await rejected(team, 400, "invalid_input", () => patch(team, id, { [field]: value }), paths);
    }
    await rejected(team, 400, "invalid_input", () => patch(team, id, {}), [""]);
  });

  test("are rejected by name in an upload, and nothing is stored", async () => {
    const team = await newTeam();
    for (const [path, value] of WRONG) {
      const properties = JSON.stringify({ [path.split(".")[0] ?? ""]: value });
      for (const send of [() => uploadForm(team, formWith(properties)), () => tusUpload(team, properties)]) {
        if (Buffer.byteLength(properties) <= 8192) {
          await rejected(team, 400, "invalid_input", send, [`properties.${path}`]);
        }
      }
    }
  });

  test("are rejected as a form part after the file, twice, above 8 KiB, or without JSON", async () => {
    const team = await newTeam();
    const twice = formWith("{}");
    twice.delete("file");
    twice.append("properties", "{}");
    twice.append("file", new File(["text"], "a.txt"));
    const large = formWith(`{}${" ".repeat(8192)}`);
    for (const body of [formWith("{}", false), twice, large, formWith("{"), formWith("null"), formWith("[]")]) {
      await rejected(team, 400, "invalid_input", () => uploadForm(team, body), ["properties"]);
    }
    expect((await uploadForm(team, formWith(`{}${" ".repeat(8190)}`))).status).toBe(200);
  });

  test("include metadata that would exceed 4 KiB after merging, but not metadata that shrinks", async () => {
    const team = await newTeam();
    const half = "x".repeat(MAX_METADATA_BYTES / 2);
    const id = await add(team, { metadata: { a: half } });
    await rejected(team, 400, "invalid_input", () => patch(team, id, { metadata: { b: half } }), ["metadata"]);
    expect((await patch(team, id, { metadata: { a: null, b: half, c: { d: null } } })).status).toBe(200);
    expect((await metadataOf(team, id)).metadata).toEqual({ b: half, c: {} });
    const most = { b: null, ...removal(...manyNames(MAX_METADATA_PATCH_NAMES - 1)) };
    expect((await patch(team, id, { metadata: most })).status).toBe(200);
    expect((await metadataOf(team, id)).metadata).toEqual({ c: {} });
  });
});

describe("Folders", () => {
  const FOLDERS = ["", "b", "a/b/c", "a/b", "a-b", "a b/c", "ab", "A", "a/\u05d0", "\u{1f600}/x"];

  const folders = async (team: Team, query = "") => {
    const all: string[] = [];
    const pages: number[] = [];
    for (let next = `/docs/v1/folders?${query}`; next; ) {
      const { status, body, headers, text } = await team.call("GET", next);
      expect(status, text).toBe(200);
      all.push(...body.data);
      pages.push(body.data.length);
      next = /<([^>]+)>/.exec(headers.get("Link") ?? "")?.[1] ?? "";
    }
    return { all, pages };
  };

  test("are listed level by level, by name, as full paths", async () => {
    const [team, other] = await Promise.all([newTeam(), newTeam()]);
    for (const folder of FOLDERS) await add(team, { folder });
    await add(other, { folder: "other" });
    expect((await folders(team)).all).toEqual(["A", "a", "a b", "a-b", "ab", "b", "\u{1f600}"]);
    expect((await folders(team, "under=a")).all).toEqual(["a/b", "a/\u05d0"]);
    expect((await folders(team, "under=a/b")).all).toEqual(["a/b/c"]);
    for (const under of ["a/b/c", "x", "a%25"]) expect((await folders(team, `under=${under}`)).all).toEqual([]);
    expect(await folders(team, "limit=3")).toEqual({ all: (await folders(team)).all, pages: [3, 3, 1] });
    expect((await folders(team, "under=a&limit=1")).pages).toEqual([1, 1]);
  });

  test("disappear with their last file", async () => {
    const team = await newTeam();
    const [first, second] = [await add(team, { folder: "a/b" }), await add(team, { folder: "c" })];
    await patch(team, first, { folder: "d" });
    await team.call("DELETE", `${UPLOADS}/${second}`);
    expect((await folders(team)).all).toEqual(["d"]);
  });

  test("reject a path that no folder can have, and a cursor of other folders", async () => {
    const team = await newTeam();
    for (const folder of ["a/1", "a/2", "b/1", "b/2"]) await add(team, { folder });
    for (const under of ["..", "a/", "a//b", "%01"]) {
      await rejected(team, 400, "invalid_input", () => team.call("GET", `/docs/v1/folders?under=${under}`), ["under"]);
    }
    const link = new URL(
      /<([^>]+)>/.exec((await team.call("GET", "/docs/v1/folders?limit=1&under=a")).headers.get("Link") ?? "")?.[1] ??
        "",
    );
    link.searchParams.set("under", "b");
    await rejected(team, 400, "invalid_input", () => team.call("GET", link.pathname + link.search), ["cursor"]);
  });
});

describe("A search", () => {
  test("continues by Link after 2,440 names", async () => {
    const team = await newTeam();
    await fill(team, "files", 2600);
    await env.DB.prepare("update files set name_key = original_name where team_id = ?").bind(team.teamId).run();
    const id = await upload(team, "zz needle.txt", "text");
    const first = await team.call("GET", `${UPLOADS}?search=NEEDLE`);
    expect([first.status, first.body.data]).toEqual([200, []]);
    const next = /<([^>]+)>/.exec(first.headers.get("Link") ?? "")?.[1] ?? "";
    const { body, headers } = await team.call("GET", next);
    expect(body.data.map(({ _id }: { _id: string }) => _id)).toEqual([id]);
    expect(headers.has("Link")).toBe(false);
  });

  test("is limited to 120 a minute and team, whatever its tokens", async () => {
    await withinOneMinute(async () => {
      const worker = startWorker(withoutJobs);
      const team = await newTeam(worker);
      const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "second" } });
      const search = (token?: string) => team.call("GET", `${UPLOADS}?search=a`, token ? { token } : {});
      const answers: Answer[] = [];
      await team.call("GET", UPLOADS, { token: body.data.key });
      for (let i = 0; i < 120; i++) answers.push(await search());
      expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
      const other = await search(body.data.key);
      expect([other.status, other.code]).toEqual([429, "rate_limited"]);
      expect((await team.call("GET", UPLOADS)).status).toBe(200);
    });
  });
});

describe("A batch", () => {
  const batch = (team: Team, json: object): Promise<Answer> => team.call("POST", `${UPLOADS}/batch`, { json });
  const results = async (team: Team, json: object) => {
    const { status, body, text } = await batch(team, json);
    expect(status, text).toBe(200);
    return body.data.map(({ _id, ok, code }: Answer["body"]) => [_id, ok, ...(code ? [code] : [])]);
  };
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
      (await eventsOf(team, id)).map(({ data }: Answer["body"]) => data.fields?.join());
    expect(await fields(a)).toEqual([undefined, "folder", "tags", "tags"]);
    expect(await fields(b)).toEqual([undefined, "tags", "tags"]);
    expect(await metadataOf(other, foreign)).toMatchObject(DEFAULTS);
  });

  test("does not exceed 20 tags of a file, and leaves such a file unchanged", async () => {
    const team = await newTeam();
    const tags = Array.from({ length: MAX_TAGS }, (_, i) => `tag ${i}`);
    const [full, free] = [await add(team, { tags }), await add(team, {})];
    expect(await results(team, { action: "tag", ids: [full, free], tags: ["new", "tag 1"] })).toEqual([
      [full, false, "too_many_tags"],
      [free, true],
    ]);
    expect((await metadataOf(team, full)).tags).toEqual(tags);
  });

  test("deletes a hundred files with their bytes, tags and rows", async () => {
    const team = await newTeam();
    const ids = await Promise.all(
      Array.from({ length: MAX_BATCH_FILES }, (_, i) =>
        i % 2 ? add(team, { tags: ["t"] }) : upload(team, "a.txt", "a"),
      ),
    );
    const unfinished = (await create(team.call, 9)).headers.get("Content-Location")?.split("/").at(-1) ?? "";
    expect(await results(team, { action: "delete", ids })).toEqual(ids.map((id) => [id, true]));
    expect(await results(team, { action: "delete", ids: [unfinished] })).toEqual([[unfinished, true]]);
    expect([await listed(team, {}), await tagRows(team)]).toEqual([[], []]);
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toEqual([]);
    expect((await team.call("GET", "/docs/v1/usage")).body.data).toMatchObject({ files: 0, bytes: 0 });
    expect(await results(team, { action: "delete", ids: ids.slice(0, 1) })).toEqual([[ids[0], false, "not_found"]]);
    const deleted = await env.DB.prepare("select count(*) as n from events where team_id = ? and type = 'file.deleted'")
      .bind(team.teamId)
      .first("n");
    expect(deleted).toBe(MAX_BATCH_FILES);
  });

  test("reprocesses up to 100 completed files a minute", async () => {
    const worker = startWorker(withoutJobs);
    await withinOneMinute(async () => {
      const team = await newTeam(worker);
      await fill(team, "files", MAX_BATCH_FILES);
      const ids = await listed(team, { limit: "100" });
      const reprocess = (some: string[]) => batch(team, { action: "reprocess", ids: some });
      expect((await reprocess(ids.slice(0, 89))).status).toBe(200);
      const single = await team.call("POST", `${UPLOADS}/${ids[89]}/reprocess`);
      expect(single.status).toBe(200);
      expect(await listed(team, { status: "pending", limit: "100" })).toEqual(ids.slice(0, 90));
      const limited = await rejected(team, 429, "rate_limited", () => reprocess(ids.slice(90)));
      expect(limited.headers.get("RateLimit")).toContain('"expensive-call"');
    });
  });

  test("counts as a request for each ID", async () => {
    let requests = 0;
    const token = async (_: string, count = 1) => {
      requests += count;
      return requests <= MAX_BATCH_FILES;
    };
    const team = await newTeam();
    const counting = startWorker((deps) => ({ ...withoutJobs(deps), limiter: { ...deps.limiter, token } }));
    const ids = [...manyNames(MAX_BATCH_FILES - 1), await upload(team, "a.txt", "a")];
    const tag = (some: string[]) =>
      counting.call("POST", `${UPLOADS}/batch`, { token: team.token, json: { action: "tag", ids: some, tags: ["a"] } });
    expect([(await tag(ids)).status, requests]).toEqual([200, MAX_BATCH_FILES]);
    requests = 1;
    const limited = await rejected(team, 429, "rate_limited", () => tag(ids));
    expect(limited.headers.get("RateLimit")).toContain('"team"');
  });

  test("needs files:delete besides files:write for a deletion", async () => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "a");
    const key = { name: "editor", scopes: ["files:write"] };
    const { body } = await team.call("POST", "/auth/v1/apikeys", { json: key });
    const as = (json: object) => team.call("POST", `${UPLOADS}/batch`, { token: body.data.key, json });
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
