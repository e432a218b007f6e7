import { createMessageBatch } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { MAX_TEAM_KEYS } from "../../src/accounts/key-rows.ts";
import { MAX_LISTED_USERS } from "../../src/accounts/users.ts";
import { eventId } from "../../src/events/events.ts";
import { MAX_BATCH_FILES } from "../../src/files/batches.ts";
import { MAX_FOLDER_BYTES } from "../../src/files/names.ts";
import { MAX_METADATA_BYTES, MAX_REFERENCE_LENGTH, MAX_TAG_LENGTH, MAX_TAGS } from "../../src/files/properties.ts";
import worker from "../../src/index.ts";
import { databaseOf } from "../../src/platform/system.ts";
import { type OperationId, operations } from "../../src/service.ts";
import { sample } from "../audio/samples.ts";
import type { Sent } from "../support/bindings.ts";
import { MEBIBYTE } from "../support/bytes.ts";
import { buildRequest } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import {
  type CallOptions,
  dataOf,
  fill,
  idsIn,
  moveToTrash,
  newKey,
  newSession,
  newTeam,
  OPERATOR,
  openSession,
  read,
  type Team,
} from "../support/harness.ts";
import { app, type Counts, isolateFor, newIsolate, queries, watched } from "../support/isolates.ts";
import { newRecord, pathTo, requestFor, routeNamed, routes, tokenFor } from "../support/routes.ts";
import { insertMany } from "../support/rows.ts";
import { describeStatements } from "../support/statements.ts";
import { emptyStores } from "../support/stores.ts";
import { isExhaustive } from "../support/tiers.ts";
import { create, locationOf, tusHeaders } from "../support/tus.ts";
import { issueToken, newUploadToken } from "../support/visitors.ts";

/*
 * The cost of each operation: round trips to D1 (each adds latency for a distant client), rows (they are billed), R2 and
 * queue operations. Every query that the service sends must use an index.
 */

/** Reading the credential and its team to authenticate the caller. */
const CREDENTIAL_ROWS = 2;
/** The round trips of a write and a heavy read: it authorizes the caller before. */
const AUTHORIZED_FIRST = 2;
/** D1 rejects more queries of one invocation. */
const MAX_INVOCATION_QUERIES = 1000;

/** The costs of the recovery job. */
const ofRecovery = new Set<Sent>();
/** The routes that a test has called. */
const driven = new Set<string>();

/** Sends a request to the isolate of its caller, which counts only one request at a time. */
async function send(route: string, path: string, options: CallOptions, change?: Partial<Env>) {
  const request = buildRequest(route.split(" ")[0] ?? "", path, options);
  driven.add(route);
  const isolate = await isolateFor(options.token, change);
  const counted = await watched(async (bindings, ctx) => app.fetch(request, bindings, ctx), isolate);
  return { ...counted, response: counted.result };
}

function runJobs(fileIds: string[], queue = "stowage-jobs", change?: Partial<Env>) {
  const messages = fileIds.map((fileId, i) => ({
    id: `${i}`,
    timestamp: new Date(),
    attempts: 1,
    body: { teamId: team.teamId, fileId },
  }));
  return watched(
    async (bindings, ctx) => worker.queue(createMessageBatch(queue, messages), bindings as never, ctx),
    newIsolate(change),
  );
}

async function recover(change?: Partial<Env>) {
  const message = { id: "1", timestamp: new Date(), attempts: 1, body: { database: databaseOf(team.teamId) } };
  const batch = createMessageBatch("stowage-recovery", [message]);
  const before = queries.length;
  const counts = await watched(
    async (bindings, ctx) => worker.queue(batch, bindings as never, ctx),
    newIsolate(change),
  );
  for (const query of queries.slice(before)) ofRecovery.add(query);
  return counts;
}

let team: Team;
let userId: string;
let publicToken: string;

const account = () => ({ email: `${crypto.randomUUID()}@example.com`, password: "correct horse battery" });
const newUser = async (json: object = account()): Promise<string> =>
  (await dataOf(team.call("POST", "/auth/v1/users", { json })))._id;

/** Uploads without processing, because no consumer gets the message. */
async function put(size = 64, headers: Record<string, string> = {}, properties?: object, token = team.token) {
  const body = new FormData();
  if (properties) body.append("properties", JSON.stringify(properties));
  body.append("file", new File([new Uint8Array(size)], "a.bin"));
  const sent = await send("POST /docs/v1/uploads", "/docs/v1/uploads", { token, body, headers });
  return { ...sent, id: sent.response.headers.get("Location")?.split("/").at(-1) ?? "" };
}

interface Resumable {
  path?: string;
  headers?: Record<string, string>;
  body?: Uint8Array<ArrayBuffer>;
}

/** Creates a resumable upload of `size` bytes. @returns its next request, with `bodyBytes` bytes */
async function createdUpload(size: number, bodyBytes = 0): Promise<Resumable> {
  const path = locationOf(await create(team.call, size));
  if (bodyBytes === 0) return { path };
  const headers = { "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream" };
  return { path, headers: { ...headers, "Content-Length": `${bodyBytes}` }, body: new Uint8Array(bodyBytes) };
}

/** The requests of resumable uploads, and their costs. */
const RESUMABLE: [string, () => Promise<Resumable>, Partial<Counts>][] = [
  ["OPTIONS /docs/v1/uploads/resumable", async () => ({}), { trips: 0 }],
  ["POST /docs/v1/uploads/resumable", async () => ({ headers: { "Upload-Length": "9" } }), { trips: 2 }],
  [
    "POST /docs/v1/uploads/resumable",
    async () => ({ headers: { "Upload-Length": "9", "Idempotency-Key": "k" } }),
    { trips: 2 },
  ],
  ["HEAD /docs/v1/uploads/resumable/{upload}", () => createdUpload(9), { trips: 1 }],
  ["PATCH /docs/v1/uploads/resumable/{upload}", () => createdUpload(9, 4), { trips: 3, r2: ["put"] }],
  [
    "PATCH /docs/v1/uploads/resumable/{upload}",
    () => createdUpload(6 * MEBIBYTE, 5 * MEBIBYTE),
    { trips: 4, r2: ["createMultipartUpload", "uploadPart"] },
  ],
  ["PATCH /docs/v1/uploads/resumable/{upload}", () => createdUpload(9, 9), { trips: 4, r2: ["put"], messages: 1 }],
  ["DELETE /docs/v1/uploads/resumable/{upload}", () => createdUpload(9), { trips: 4, r2: ["list", "delete"] }],
  [
    "POST /docs/v1/uploads/resumable/{upload}",
    async () => {
      const { path, headers } = await createdUpload(9);
      return { path, headers: { ...headers, "X-HTTP-Method-Override": "HEAD" } };
    },
    { trips: 1 },
  ],
];

async function sendResumable(route: string, prepare: () => Promise<Resumable>) {
  const { path = route.split(" ")[1] ?? "", headers, body } = await prepare();
  return send(route, path, { token: publicToken, headers: tusHeaders(headers), ...(body && { body }) });
}

/** The routes whose example is measured. An upload, a login, and setting a password have separate tests. */
const DESCRIBE = "POST /auth/v1/invitations/describe";
const ACCEPT = "POST /auth/v1/invitations/accept";
const FORGOT = "POST /auth/v1/password/forgot";
const exampleRoutes = routes.filter(
  ({ name }) => !["POST /docs/v1/uploads", "POST /auth/v1/login", DESCRIBE, ACCEPT, FORGOT].includes(name),
);

/** Sends the example of a route's contract, for a separate record. */
async function sendExample(name: string, sender?: Team) {
  const route = routeNamed(name);
  const caller = sender ?? (/webhooks|deliveries/.test(name) ? await newTeam() : team);
  const path = route.path.includes("{id}") ? pathTo(route, await newRecord(caller, route)) : route.path;
  const reply = vi.spyOn(globalThis, "fetch").mockImplementation(async () => new Response("ok"));
  const sent = await send(name, path, { ...requestFor(route), token: tokenFor(route, caller) });
  reply.mockRestore();
  return sent;
}

/** Opens a new link of a file: its bytes, or what its page shows. */
async function sendLinkOf(fileId: string, isPage = false) {
  const { body } = await team.call("POST", `/docs/v1/uploads/${fileId}/links`, { json: {} });
  const { pathname } = new URL(body.data.url);
  if (isPage) return send("GET /docs/v1/links/{id}.{secret}", pathname.split("/").slice(0, -1).join("/"), {});
  return send("GET /docs/v1/links/{link}/{name}", pathname, { headers: { Range: "bytes=0-0" } });
}
async function sendTranscriptOf(fileId: string) {
  const { body } = await team.call("POST", `/docs/v1/uploads/${fileId}/links`, { json: {} });
  const link = new URL(body.data.url).pathname.split("/").slice(0, -1).join("/");
  return send("GET /docs/v1/links/{link}/transcript/{name}", `${link}/transcript/a.vtt`, {});
}

beforeAll(async () => {
  team = await newTeam();
  userId = await newUser();
  publicToken = (await newKey(team, { isPublic: true })).key;
});

describe("Until its response", () => {
  const expectCost = async (route: string, options: CallOptions, trips: number, path = route.split(" ")[1] ?? "") => {
    const { response, byResponse } = await send(route, path, options);
    expect(byResponse).toMatchObject({ trips, r2: [], messages: 0 });
    return response.status;
  };

  test("an update of a user's email and password costs two round trips, although it waits for a hash", async () => {
    const options = { token: team.token, json: { ...account(), lastname: "King" } };
    expect(await expectCost("PATCH /auth/v1/users/{id}", options, AUTHORIZED_FIRST, `/auth/v1/users/${userId}`)).toBe(
      200,
    );
  });

  test("a reset costs the same round trip for a user and an unknown email, and the rest follows the response", async () => {
    const known = account();
    await newUser(known);
    for (const { email } of [known, account()]) {
      expect(await expectCost(FORGOT, { json: { teamId: team.teamId, email } }, 1)).toBe(200);
    }
  });

  test.each<[string, number, Record<string, string>, string[]]>([
    ["64 bytes takes one object", 64, {}, ["put"]],
    ["8 MiB with Content-Length takes one object", 8 * MEBIBYTE, { "Content-Length": "8400000" }, ["put"]],
    ["5 MiB without Content-Length takes one object", 5 * MEBIBYTE, {}, ["put"]],
    [
      "11 MiB takes parts of 5 MiB",
      11 * MEBIBYTE,
      {},
      ["createMultipartUpload", "uploadPart", "uploadPart", "uploadPart", "complete"],
    ],
  ])("an upload of %s, three round trips and a message", async (_, size, headers, r2) => {
    const { response, byResponse } = await put(size, headers);
    expect(response.status).toBe(200);
    expect(byResponse).toMatchObject({ trips: 3, r2, messages: 1 });
  });

  test("an Idempotency-Key adds no cost, and a repetition stores nothing", async () => {
    const headers = { "Idempotency-Key": crypto.randomUUID() };
    expect((await put(64, headers)).byResponse).toMatchObject({ trips: 3, r2: ["put"], messages: 1 });
    expect((await put(64, headers)).byResponse).toMatchObject({ trips: 3, r2: [], messages: 0 });
  });

  test.each(RESUMABLE)("%s of a resumable upload has an exact cost", async (route, prepare, cost) => {
    const { response, byResponse } = await sendResumable(route, prepare);
    expect(response.ok).toBe(true);
    expect(byResponse).toMatchObject({ r2: [], messages: 0, ...cost });
  });

  test.each<[string, object]>([
    ["delete", { r2: ["delete"] }],
    ["restore", {}],
    ["reprocess", { messages: 100 }],
    ["tag", {}],
    ["untag", {}],
    ["move", {}],
  ])("a batch to %s 100 files costs two round trips and %j", async (action, effects) => {
    const { token, call, ...crowd } = await newTeam();
    await fill({ token, call, ...crowd }, "files", 100);
    const ids = idsIn(await read({ call }, "/docs/v1/uploads?limit=100"));
    if (action === "restore") for (const id of ids) await moveToTrash({ token }, id);
    const input = action === "move" ? { folder: "f" } : action.includes("tag") ? { tags: ["a"] } : {};
    const before = queries.length;
    const path = "/docs/v1/uploads/batch";
    const { response, byResponse } = await send(`POST ${path}`, path, { token, json: { action, ids, ...input } });
    expect(((await response.json()) as { data: { ok: boolean }[] }).data.filter(({ ok }) => ok)).toHaveLength(100);
    expect(byResponse).toMatchObject({ trips: AUTHORIZED_FIRST, r2: [], messages: 0, ...effects });
    const sent = queries.slice(before).filter(({ parameters }) => parameters.length > 0);
    expect(sent.length).toBeLessThanOrEqual(MAX_INVOCATION_QUERIES / 2);
  });

  const manyTags = (first: number) => Array.from({ length: MAX_TAGS }, (_, i) => `tag ${first + i}`);
  test.each([
    ["tag files without tags", [], "tag", manyTags(0), true, 11_000, 6200],
    ["tag files that have as many, which refuses all", manyTags(20), "tag", manyTags(0), false, 9000, 0],
    ["tag files with the tags that they have", manyTags(0), "tag", manyTags(0), true, 5000, 0],
    ["untag files that have as many", manyTags(0), "untag", manyTags(0), true, 13_000, 6200],
  ])("a batch of 100 files and 20 tags, to %s, reads and writes a bounded number of rows", async (_, ...limits) => {
    const [tags, action, changed, isOk, rowsRead, rowsWritten] = limits;
    const crowd = await newTeam();
    await fill(crowd, "files", MAX_BATCH_FILES);
    const ids = idsIn(await read(crowd, `/docs/v1/uploads?limit=${MAX_BATCH_FILES}`));
    const path = "/docs/v1/uploads/batch";
    const change = (json: object) => send(`POST ${path}`, path, { token: crowd.token, json: { ids, ...json } });
    if (tags.length > 0) await change({ action: "tag", tags });
    const { response, inTotal } = await change({ action, tags: changed });
    const { data } = (await response.json()) as { data: { ok: boolean }[] };
    expect(data.filter(({ ok }) => ok)).toHaveLength(isOk ? MAX_BATCH_FILES : 0);
    expect(inTotal.rowsRead).toBeLessThanOrEqual(rowsRead);
    expect(inTotal.rowsWritten).toBeLessThanOrEqual(rowsWritten);
  });

  test("a malformed token reads nothing", async () => {
    expect(await expectCost("GET /docs/v1/uploads", { token: "hello" }, 0)).toBe(401);
  });

  test("a caller without the scope costs one round trip", async () => {
    expect(await expectCost("POST /auth/v1/users", { token: publicToken, json: account() }, 1)).toBe(403);
  });
});

describe("A job", () => {
  test("claims and finishes in two round trips, and reads the object's properties and at most two ranges from R2", async () => {
    const { id } = await put();
    const { inTotal } = await runJobs([id]);
    expect(inTotal).toMatchObject({ trips: 2, messages: 0 });
    expect(inTotal.r2[0]).toBe("head");
    expect(inTotal.r2.length).toBeLessThanOrEqual(3);
  });

  test("makes two round trips if it finds nothing to process, because it checks for an upload to assemble", async () => {
    const { inTotal } = await runJobs(["0193477be8a01f9c3ad5e7b2"]);
    expect(inTotal).toMatchObject({ trips: 2, r2: [], messages: 0 });
  });
});

describe("The rows written", () => {
  test("are at most 15 for an upload, its job and its two events", async () => {
    const { id, inTotal } = await put();
    const job = await runJobs([id]);
    expect(inTotal.rowsWritten + job.inTotal.rowsWritten).toBeLessThanOrEqual(15);
  });

  test("audio writes two rows more than text, for its waveform, and with a title or an artist another one, which processing adds to the index that a search reads", async () => {
    const rowsOf = async (name: string) => {
      const body = new FormData();
      body.append("file", new File([sample(name).bytes], name));
      const sent = await send("POST /docs/v1/uploads", "/docs/v1/uploads", { token: team.token, body });
      const { _id } = ((await sent.response.json()) as { data: { _id: string } }).data;
      const job = await runJobs([_id]);
      return sent.inTotal.rowsWritten + job.inTotal.rowsWritten;
    };
    expect([await rowsOf("tone.wav"), await rowsOf("tone.flac")]).toEqual([16, 17]);
  });

  test("an upload by a user writes two rows more, three in a folder, and four by an upload token, for its receipt and its visitor", async () => {
    const rowsBy = async (token: string, properties?: object) =>
      (await put(64, {}, properties, token)).inTotal.rowsWritten;
    const member = await newUser({ ...account(), role: "member" });
    const session = await newSession(team, member);
    const [plain, inFolder] = [await rowsBy(team.token), await rowsBy(team.token, { folder: "a" })];
    expect(await rowsBy(session)).toBe(plain + 2);
    expect(await rowsBy(session, { folder: "a" })).toBe(inFolder + 3);
    expect(await rowsBy((await newUploadToken(team)).token)).toBe(plain + 4);
    const { token } = await newUploadToken(team, { properties: { folder: "a" } });
    expect(await rowsBy(token)).toBe(inFolder + 4);
  });

  test("a file has one row more for each tag and for a reference, two for a folder, and none for a name or metadata", async () => {
    const rows = async (properties?: object) => (await put(64, {}, properties)).inTotal.rowsWritten;
    const plain = await rows();
    const metadata = { a: "b" };
    const tags = ["a", "b", "c"];
    const costs = [{ name: "b", metadata }, { reference: "r" }, { folder: "f" }, { tags }, { tags, folder: "f" }];
    const found: number[] = [];
    for (const properties of costs) found.push(await rows(properties));
    expect(found).toEqual([0, 1, 2, 3, 5].map((more) => plain + more));
  });
});

describe("A search of transcripts", () => {
  const search = (token: string, words: string) =>
    send("GET /docs/v1/transcripts", `/docs/v1/transcripts?search=${words}`, { token });
  const setTranscript = (id: string) =>
    team.call("PUT", `/docs/v1/uploads/${id}/transcript`, {
      body: "WEBVTT\n\n00:00.000 --> 00:01.000\nzirconium",
      headers: { "Content-Type": "text/vtt" },
    });

  test("costs two round trips and a call of the object, and three for a contributor", async () => {
    const token = await newSession(team, await newUser({ ...account(), role: "contributor" }));
    for (const caller of [team.token, token]) await setTranscript((await put(64, {}, undefined, caller)).id);
    const [all, own] = [await search(team.token, "zirconium"), await search(token, "zirconium")];
    expect(await all.response.json()).toMatchObject({ message: "Files: 2." });
    expect(await own.response.json()).toMatchObject({ message: "Files: 1." });
    expect(all.byResponse).toMatchObject({ trips: AUTHORIZED_FIRST, objects: 1 });
    expect(own.byResponse).toMatchObject({ trips: AUTHORIZED_FIRST + 1, objects: 1 });
    // The caller twice, and of each file its rows for the list and the transcript. A contributor's list reads all transcripts of the team.
    expect(all.inTotal.rowsRead).toBeLessThanOrEqual(2 * CREDENTIAL_ROWS + 2 * 4);
    expect(own.inTotal.rowsRead).toBeLessThanOrEqual(100);
  });
});

test("A transcript wakes the search index, which an upload does not", async () => {
  const [route, sent] = [routeNamed("PUT /docs/v1/uploads/{id}/transcript"), await put()];
  const set = await send(route.name, pathTo(route, sent.id), { ...requestFor(route), token: team.token });
  expect([sent.inTotal.objects, set.inTotal.objects]).toEqual([0, 1]);
});

describe("The rows written for the trash", () => {
  const change = { TRASH_DAYS: "30" } as unknown as Partial<Env>;
  const request = async (route: string, id: string, token = team.token, query = "") => {
    const path = (route.split(" ")[1] ?? "").replace("{id}", id) + query;
    const { response, byResponse, inTotal } = await send(route, path, { token }, change);
    expect(response.status).toBe(200);
    return { ...inTotal, byResponse };
  };
  const deleteOne = async (query: string, token: string) => {
    const { id } = await put(64, {}, { folder: "f", tags: ["a"] }, token);
    await runJobs([id]);
    return { id, ...(await request("DELETE /docs/v1/uploads/{id}", id, token, query)) };
  };

  test("are no more than those of an erasure, and a restored file adds those of its indexes", async () => {
    const member = await newUser({ ...account(), role: "member" });
    const rows = {
      [team.token]: { erased: 7, trashed: 6, restored: 9, erasedLater: 6 },
      [await newSession(team, member)]: { erased: 7, trashed: 7, restored: 13, erasedLater: 6 },
    };
    for (const [token, expected] of Object.entries(rows)) {
      const [erased, trashed] = [await deleteOne("?permanent=true", token), await deleteOne("", token)];
      const restored = await request("POST /docs/v1/trash/{id}/restore", trashed.id, token);
      const { id } = await deleteOne("", token);
      const erasedLater = await request("DELETE /docs/v1/trash/{id}", id, token);
      const costs = Object.entries({ erased, trashed, restored, erasedLater });
      expect(Object.fromEntries(costs.map(([name, { rowsWritten }]) => [name, rowsWritten]))).toEqual(expected);
      expect([erased, trashed, restored, erasedLater].map(({ r2 }) => r2)).toEqual([["delete"], [], [], ["delete"]]);
      expect(restored.byResponse).toMatchObject({ trips: AUTHORIZED_FIRST, messages: 0 });
    }
  });

  test("a page of the trash reads its own rows, among many files", async () => {
    const crowd = await newTeam(undefined, 0);
    await fill(crowd, "files", 1000);
    for (let i = 0; i < 3; i++)
      await moveToTrash(crowd, await newRecord(crowd, routeNamed("GET /docs/v1/uploads/{id}/metadata")));
    const { rowsRead } = await request("GET /docs/v1/trash", "", crowd.token, "?limit=2");
    // It examines three rows in the primary key, and then reads them.
    expect(rowsRead).toBeLessThanOrEqual(CREDENTIAL_ROWS + 3 * 3);
  });
});

describe("An event", () => {
  /** Creates a team with `count` webhooks for the event and, up to the limit of ten, one for other events. */
  async function teamWith(count: number): Promise<Team> {
    const team = await newTeam();
    const webhooks = [
      ...Array(count).fill({ types: ["apikey.created"] }),
      ...(count < 9 ? [{ types: ["user.created"] }] : []),
    ];
    for (const { types } of webhooks) {
      await dataOf(team.call("POST", "/auth/v1/webhooks", { json: { url: "https://hooks.canary.example/", types } }));
    }
    return team;
  }
  const createEvent = async (token: string) =>
    (await send("POST /auth/v1/apikeys", "/auth/v1/apikeys", { token, json: { name: "key" } })).inTotal;

  test("writes one row in the round trip of the write, however many webhooks it wakes", async () => {
    const [without, one, ten] = [await newTeam(), await teamWith(1), await teamWith(10)];
    const costs = [await createEvent(without.token), await createEvent(one.token), await createEvent(ten.token)];
    expect(costs.map(({ trips }) => trips)).toEqual([2, 2, 2]);
    expect(costs.map(({ messages }) => messages)).toEqual([0, 0, 0]);
    expect(costs.map(({ objects }) => objects)).toEqual([0, 1, 10]);
    // Eight rows for the key and its indexes, one for the team's count, one for the event, and one for the team's events of a day.
    expect(costs.map(({ rowsWritten }) => rowsWritten)).toEqual([11, 11, 11]);
    const [none = 0, , all = 0] = costs.map(({ rowsRead }) => rowsRead);
    // The refusal and the insert read the team and the caller, too.
    expect(none).toBeLessThanOrEqual(CREDENTIAL_ROWS + 15);
    expect(all - none).toBeLessThanOrEqual(12);
  });

  test("of each of 100 files in a batch looks up the followers of the team once", async () => {
    const { token } = await newTeam();
    const before = queries.length;
    const ids = Array.from({ length: 100 }, (_, i) => i.toString(16).padStart(24, "0"));
    const json = { action: "move", folder: "a", ids };
    await send("POST /docs/v1/uploads/batch", "/docs/v1/uploads/batch", { token, json });
    const lookups = queries
      .slice(before)
      .filter(({ sql }) => sql.startsWith('select "team_id", "kind", "id" from "followers"'));
    expect(lookups.filter(({ parameters }) => parameters.includes("file.updated"))).toHaveLength(1);
  });

  test.each([
    ["PATCH /auth/v1/webhooks/{id}", "", { description: "a" }],
    ["POST /auth/v1/webhooks/{id}/secret", "/secret", {}],
    ["POST /auth/v1/webhooks/{id}/test", "/test", {}],
    ["POST /auth/v1/webhooks/{id}/replay", "/replay", { after: "2026-01-01T00:00:00Z" }],
    ["GET /auth/v1/webhooks/{id}/deliveries", "/deliveries", undefined],
    ["DELETE /auth/v1/webhooks/{id}", "", undefined],
  ])("calls no object of an invented webhook: %s", async (route, path, json) => {
    const { token } = await newTeam();
    const invented = `/auth/v1/webhooks/0193477c0d2b4f6e8a1c3e50${path}`;
    const { response, inTotal } = await send(route, invented, { token, ...(json && { json }) });
    expect([response.status, inTotal.objects]).toEqual([404, 0]);
  });

  test("has deliveries, of which a page takes one call of the webhook's object", async () => {
    const team = await teamWith(1);
    await createEvent(team.token);
    const [, { _id }] = (await read(team, "/auth/v1/webhooks")).reverse();
    const path = `/auth/v1/webhooks/${_id}/deliveries?limit=100&status=succeeded`;
    const { response, inTotal } = await send("GET /auth/v1/webhooks/{id}/deliveries", path, { token: team.token });
    expect(((await response.json()) as { data: unknown[] }).data).toHaveLength(1);
    // With `status`, it is heavy.
    expect(inTotal).toMatchObject({ trips: AUTHORIZED_FIRST, objects: 1 });
    expect(inTotal.rowsRead).toBeLessThanOrEqual(CREDENTIAL_ROWS + 5);
  });
});

describe("With 100,000 files, users and events in a team", () => {
  const ROWS = 100_000;
  const HIDDEN_ROWS = 3000;
  /** A page of 20, one row that shows whether another page follows, and the row of a cursor by name. */
  const PAGE_ROWS = 22;
  /** That of a session, with its user. */
  const SESSION_ROWS = 4;
  /** Authorization in a separate round trip: the key and its team. */
  const AUTHORIZATION_ROWS = 2;
  const FIRST_MILLISECOND = Date.parse("2026-01-01T00:00:00Z");
  const instantAt = (row: number) => new Date(FIRST_MILLISECOND + row).toISOString();
  const idAt = (row: number) => [FIRST_MILLISECOND + row, row].map((n) => n.toString(16).padStart(12, "0")).join("");
  let large: Team;

  /** Half of the files are in 25 folders. */
  const insertFiles = (team: Team, rows: number) =>
    DB.prepare(
      `insert into files (etag, mime_type, id, team_id, key_id, original_name, name_key, status, file_type, folder, reference, tags, search_keys,
         has_transcript, reserved_bytes, size_bytes, processed_at, created_at, updated_at)
       with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1),
         named as (select i, case i % 50 when 7 then 'take.mp3' else printf('%02d-%06d.mp3', i % 50, i) end as name from n)
       select 'x', '', printf('%012x%012x', ${FIRST_MILLISECOND} + i, i), ?2, ?2, name, name, ${status}, ${type},
         iif(i % 2, '', printf('shows/%02d', i % 50)), iif(i % 100 = 1, 'r', null), iif(i % 10, '[]', '["t"]'), iif(i % 10, '{}', '{"tags":{"t":"t"},"tagText":"t"}'),
         i % 100 = 3, 1, 1, ${processedAt}, 1, 1 from named`,
    ).bind(rows, team.teamId);
  // States and types are spread evenly. There are no video files.
  const status = `case i % 200 when 0 then 'failed' when 1 then 'pending' when 2 then 'processing' else 'completed' end`;
  const type = `case i % 100 when 0 then 'text file' when 50 then 'image file' else 'audio file' end`;
  const processedAt = "case when i % 200 in (1, 2) then null else 1 end";

  /** Newer than all others: uploads in progress. */
  const insertReceiving = (team: Team, rows: number) =>
    DB.prepare(
      `insert into uploads (file_id, team_id, key_id, is_public, original_name, size_bytes, due_at, created_at, updated_at)
       with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
       select printf('%012x%012x', ${FIRST_MILLISECOND + ROWS} + i, i), ?2, ?2, 0, 'a.mp3', 1, 4e12, 1, 1 from n`,
    ).bind(rows, team.teamId);
  /** Files in the trash, and files that wait for their bytes to be deleted. */
  const insertRemoved = (team: Team, rows: number) =>
    DB.prepare(
      `insert into removed (id, team_id, original_name, reserved_bytes, size_bytes, trashed_at, file, due_at)
       with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
       select printf('%012x%012x', ${FIRST_MILLISECOND + ROWS} - i, i), ?2, 'a.mp3', 1, 1, iif(i % 3 = 1, 1, null),
         iif(i % 3 = 1, '{"status":"completed","key_id":"k","created_at":1,"updated_at":1,"version":0}', null), 4e12 from n`,
    ).bind(rows, team.teamId);

  beforeAll(async () => {
    large = await newTeam(undefined, 0);
    const numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)";
    // One row per millisecond.
    const id = `printf('%012x%012x', ${FIRST_MILLISECOND} + i, i)`;
    await DB.batch([
      insertFiles(large, ROWS),
      insertReceiving(large, HIDDEN_ROWS),
      insertRemoved(large, HIDDEN_ROWS),
      DB.prepare(
        `insert into users (id, team_id, first_name, last_name, email, email_key, password, role, created_at, updated_at)
         ${numbers} select ${id}, ?2, printf('User %02d', i % 50), i / 10000, i || '@b.de', i || '@b.de', '', 'admin', 1, 1 from n`,
      ).bind(ROWS, large.teamId),
      DB.prepare(
        // Each by another user, and in some pages of a filter as many as fill it.
        `insert into events ${numbers} select ?2, i * 1000, iif(i % 4, 'file.uploaded', 'link.created'), 1,
           json_object('keyId', 'k', 'userId', ${id}), ${id}, 1, '{}', i from n`,
      ).bind(ROWS, large.teamId),
    ]);
  });

  /** Requests one page of a list. @returns its number of items, its cost and its next page */
  const pageAt = async (path: string) => {
    const { token } = large;
    const { response, byResponse } = await send(`GET ${path.replace(/^https:..[^/]+/, "").split("?")[0]}`, path, {
      token,
    });
    expect(response.status).toBe(200);
    const isHeavy = response.headers.get("RateLimit-Policy")?.includes("heavy");
    expect(byResponse.trips).toBe(isHeavy ? AUTHORIZED_FIRST : 1);
    const body = (await response.json()) as { data: unknown[] } | unknown[];
    const count = (Array.isArray(body) ? body : body.data).length;
    return {
      body,
      count,
      rowsRead: byResponse.rowsRead,
      link: /<(.*)>/.exec(response.headers.get("Link") ?? "")?.[1] ?? "",
    };
  };

  test.each([
    ["/docs/v1/uploads?limit=20", 50],
    ["/docs/v1/uploads?limit=20&status=failed", 20],
    ["/docs/v1/uploads?limit=20&fileType=text%20file", 40],
    ["/docs/v1/uploads?limit=20&fileType=image+file", 40],
    ["/docs/v1/uploads?limit=20&hasTranscript=true", 40],
    ["/docs/v1/uploads?limit=20&name=1", 50],
    ["/docs/v1/uploads?limit=20&name=take", 45],
    [`/docs/v1/uploads?limit=20&createdAfter=${instantAt(20_000)}`, 50],
    [`/docs/v1/uploads?limit=20&createdBefore=${instantAt(80_000)}`, 50],
    [`/docs/v1/uploads?limit=20&createdAfter=${instantAt(20_000)}&createdBefore=${instantAt(80_000)}`, 50],
    [`/docs/v1/uploads?limit=20&status=failed&createdBefore=${instantAt(80_000)}`, 10],
    [`/docs/v1/uploads?limit=20&fileType=text%20file&createdAfter=${instantAt(20_000)}`, 30],
    ["/auth/v1/users?limit=20", 50],
    ["/auth/v1/users?limit=20&name=User%201", 50],
    ["/auth/v1/users?limit=20&name=User%2007%209", 5],
  ])("GET %s reads only its page by Link, and also the previous rows by number", async (path, number) => {
    const first = await pageAt(path);
    const numbered = await pageAt(`${path}&page=${number}`);
    const next = await pageAt(numbered.link);
    for (const { count, rowsRead } of [first, next]) {
      expect(count).toBe(20);
      expect(rowsRead).toBeLessThanOrEqual(PAGE_ROWS + CREDENTIAL_ROWS);
    }
    expect(numbered.rowsRead).toBeLessThanOrEqual((number - 1) * 20 + PAGE_ROWS + CREDENTIAL_ROWS + AUTHORIZATION_ROWS);
  });

  describe("of whom one user uploaded 2,000", () => {
    let token: string;
    beforeAll(async () => {
      const aUser = "id in (select id from users where team_id = ? limit 1)";
      const user = await DB.prepare(`update users set role = 'contributor' where ${aUser} returning id`)
        .bind(large.teamId)
        .first<{ id: string }>();
      const userId = user?.id ?? "";
      token = await newSession(large, userId);
      const isOwn = "id in (select id from files where team_id = ?1 order by id limit 2000)";
      await DB.batch([
        DB.prepare(`update files set user_id = ?2 where team_id = ?1 and ${isOwn}`).bind(large.teamId, userId),
        DB.prepare(`update file_tags set user_id = ?2 where team_id = ?1 and file_${isOwn}`).bind(large.teamId, userId),
        DB.prepare("update removed set user_id = ?2 where team_id = ?1").bind(large.teamId, userId),
        DB.prepare("update uploads set user_id = ?2 where team_id = ?1").bind(large.teamId, userId),
      ]);
    });

    test.each([
      ["", 20, 50],
      ["&sort=name", 20, 50],
      ["&name=01", 20, 50],
      ["&folder=shows/10", 20, 50],
      ["&tag=t", 20, 1000],
      ["&search=nothing", 0, 5000],
    ])(
      "GET /docs/v1/uploads?limit=20%s lists %i of the user's files and reads at most %i rows",
      async (query, count, rows) => {
        const { response, inTotal } = await send("GET /docs/v1/uploads", `/docs/v1/uploads?limit=20${query}`, {
          token,
        });
        const { data } = (await response.json()) as { data: unknown[] };
        expect(data).toHaveLength(count);
        // A tag is searched among the user's files, so these two requests are heavy.
        expect(inTotal.trips).toBe(/search|tag/.test(query) ? AUTHORIZED_FIRST : 1);
        expect(inTotal.rowsRead).toBeLessThanOrEqual(rows + inTotal.trips * SESSION_ROWS);
      },
    );

    test("GET /docs/v1/tags reads no more for their files, however many have a tag", async () => {
      const { response, inTotal } = await send("GET /docs/v1/tags", "/docs/v1/tags", { token });
      expect(((await response.json()) as { data: unknown[] }).data).toEqual([{ tag: "t" }]);
      expect(inTotal.rowsRead).toBeLessThanOrEqual(2 + 5 + SESSION_ROWS);
    });

    test("GET /docs/v1/folders and /docs/v1/usage read only the user's files, with those in the trash", async () => {
      const folders = await send("GET /docs/v1/folders", "/docs/v1/folders?under=shows", { token });
      expect(((await folders.response.json()) as { data: unknown[] }).data).toHaveLength(25);
      expect(folders.inTotal.rowsRead).toBeLessThanOrEqual(100);
      const usage = await send("GET /docs/v1/usage", "/docs/v1/usage", { token });
      expect(await usage.response.json()).toMatchObject({ data: { files: 3000, bytes: 3000, events: 0 } });
      expect(usage.inTotal.rowsRead).toBeLessThanOrEqual(3000 + 20);
    });
  });

  test.each([
    ["folder=shows/10", 20, 50],
    ["folder=shows/10&sort=name", 20, 50],
    ["folder=shows/10&name=10", 20, 50],
    ["tag=t", 20, 50],
    ["reference=r", 20, 50],
    ["sort=name", 20, 50],
    ["sort=-name", 20, 50],
    ["sort=createdAt", 20, 50],
    ["folder=shows/10&sort=-name", 20, 50],
    [`sort=createdAt&createdAfter=${instantAt(90_000)}&createdBefore=${instantAt(99_900)}`, 20, 50],
    ["under=shows", 20, 100],
    ["folder=", 20, 100],
    ["tag=t&folder=shows/10", 20, 300],
    ["tag=t&under=shows/10&status=failed", 0, 1000],
    ["reference=r&status=failed", 0, 1000],
    ["under=shows/10&sort=name&status=failed", 0, 1000],
    ["tag=t&hasTranscript=true", 0, 1000],
    ["hasTranscript=true&sort=name", 0, 1000],
    ["hasTranscript=false&status=completed", 20, 1000],
    ["folder=shows/10&include=metadata", 20, 100],
    ["status=completed&name=03-&include=metadata", 20, 1000],
    ["tag=t&under=shows/10&status=failed&include=metadata", 0, 1000],
    ["search=nothing", 0, 5000],
    ["search=00&sort=-createdAt", 9, 1000],
    ["search=nothing&folder=shows/10&tag=t", 0, 1000],
    ["status=completed&name=03-", 20, 1000],
    ["name=03-&fileType=video%20file", 0, 1000],
    [`name=0&createdAfter=${instantAt(99_900)}`, 0, 1000],
    ["status=failed&fileType=text%20file", 20, 1000],
    ["name=1&status=failed&fileType=audio%20file", 0, 1000],
    ["name=00-&status=failed", 20, 1000],
  ])(
    "GET /docs/v1/uploads?%s returns %i of 100,000 files, reads at most %i rows, and has a Link",
    async (query, count, rows) => {
      // A list that an index serves, and a search, each have a separate maximum.
      const first = await pageAt(`/docs/v1/uploads?limit=20&${query}`);
      const second = await pageAt(first.link);
      expect(first.count).toBe(count);
      for (const page of [first, second])
        expect(page.rowsRead).toBeLessThanOrEqual(rows + CREDENTIAL_ROWS + AUTHORIZATION_ROWS);
    },
  );

  test("GET /docs/v1/tags reads two rows for each tag, however many files have it", async () => {
    const { count, rowsRead } = await pageAt("/docs/v1/tags");
    expect(count).toBe(1);
    // The credential, the team, and the search that finds the end.
    const bound = (tags: number) => 2 * tags + 5 + CREDENTIAL_ROWS;
    expect(rowsRead).toBeLessThanOrEqual(bound(1));
    const [crowd, tags, files] = [await newTeam(undefined, 0), 25, 200];
    await DB.prepare(
      `insert into file_tags (team_id, tag_key, tag, file_id)
       with recursive n(i) as (select 0 union all select i + 1 from n where i < ?1 * ?2 - 1)
       select ?3, printf('s%02d', i / ?2), printf('S%02d', i / ?2), printf('%024x', i) from n`,
    )
      .bind(tags, files, crowd.teamId)
      .run();
    for (const [query, expected] of [
      ["", tags],
      ["?prefix=s", tags],
      ["?prefix=s00", 1],
      ["?prefix=r", 0],
      ["?limit=5", 5],
    ] as const) {
      const { response, byResponse } = await send("GET /docs/v1/tags", `/docs/v1/tags${query}`, { token: crowd.token });
      expect(((await response.json()) as { data: unknown[] }).data).toHaveLength(expected);
      expect(byResponse.rowsRead).toBeLessThanOrEqual(bound(expected));
    }
  });

  test("GET /docs/v1/folders reads three rows for each folder, however many files are in it", async () => {
    const { count, rowsRead } = await pageAt("/docs/v1/folders?under=shows");
    expect(count).toBe(25);
    // And one for the created folders.
    expect(rowsRead).toBeLessThanOrEqual(3 * 25 + 11);
    // As many for those of all levels: also the 25 folders above.
    const deep = await pageAt("/docs/v1/folders?deep=true");
    expect(deep.count).toBeGreaterThan(25);
    expect(deep.rowsRead).toBeLessThanOrEqual(3 * deep.count + 11);
  });

  test.each([
    // The rows that are examined, and those of the page.
    ["status=completed", 21, 24 + 21],
    ["fileType=audio%20file", 21, 24 + 21],
    ["status=completed&fileType=audio%20file", 21, 24 + 21],
    // One index serves both pending and processing files, so that a claim writes no index row. Half are of each status.
    ["status=pending", 10, 42 + 21],
    ["status=processing", 10, 42 + 21],
  ])(
    "GET /docs/v1/uploads?%s reads little more than its page by Link, and at most 1,000 rows by number",
    async (filters, number, rows) => {
      const path = `/docs/v1/uploads?limit=20&${filters}`;
      const first = await pageAt(path);
      const deep = await pageAt(first.link.replace(/[0-9a-f]{24}$/, idAt(50_000)));
      for (const { count, rowsRead } of [first, deep]) {
        expect(count).toBe(20);
        expect(rowsRead).toBeLessThanOrEqual(rows + CREDENTIAL_ROWS + AUTHORIZATION_ROWS);
      }
      const numbered = await pageAt(`${path}&page=${number}`);
      expect(numbered.rowsRead).toBeLessThanOrEqual(1000 + CREDENTIAL_ROWS + AUTHORIZATION_ROWS);
    },
  );

  test.each([
    ["/docs/v1/uploads?page=1000000000&status=completed", 0],
    ["/docs/v1/uploads?page=51", 0],
    ["/auth/v1/users?page=51", 0],
    ["/auth/v1/apikeys?page=51", 0],
    ["/docs/v1/uploads?status=completed&page=50", 1000],
    ["/docs/v1/uploads?status=failed&name=0&page=50", 1000],
  ])("GET %s is rejected and reads at most %i rows", async (path, rows) => {
    const { response, byResponse } = await send(`GET ${path.split("?")[0]}`, path, { token: large.token });
    expect(response.status).toBe(400);
    expect(byResponse.rowsRead).toBeLessThanOrEqual(rows + CREDENTIAL_ROWS + AUTHORIZATION_ROWS);
  });

  test.each(["order=desc", "order=asc", "order=desc&before=MIDDLE", "order=asc&after=MIDDLE"])(
    "GET /auth/v1/events?%s reads only its page, and the names of each actor and subject",
    async (query) => {
      let path = `/auth/v1/events?limit=20&${query.replace("MIDDLE", eventId(large.teamId, (ROWS / 2) * 1000))}`;
      for (let pages = 0; pages < 3; pages++) {
        const page = await pageAt(path);
        expect(page.rowsRead).toBeLessThanOrEqual(3 * 21 + CREDENTIAL_ROWS);
        path = page.link;
      }
    },
  );

  test("GET /auth/v1/events?type=link&limit=100 examines almost 500 events, and reads at most 1,000 rows with 100 names", async () => {
    const { body, count, rowsRead } = await pageAt("/auth/v1/events?type=link&limit=100");
    expect(count).toBe(100);
    expect(rowsRead).toBeLessThanOrEqual(1000);
    const { data } = body as { data: { actor: { name: string } }[] };
    expect(new Set(data.map(({ actor }) => actor.name)).size).toBeGreaterThan(10);
  });

  test.each([
    ["/docs/v1/uploads?fileType=video%20file", 0],
    ["/docs/v1/uploads?name=x", 0],
    [`/docs/v1/uploads?createdAfter=${instantAt(ROWS)}`, 0],
    ["/auth/v1/users?name=x", 0],
    ["/auth/v1/users?email=unknown@b.de", 0],
    ["/auth/v1/users?email=500@B.de&name=User", 1],
  ])("GET %s returns %i and reads at most one row", async (path, count) => {
    const page = await pageAt(path);
    expect(page.count).toBe(count);
    expect(page.rowsRead).toBeLessThanOrEqual(1 + CREDENTIAL_ROWS);
  });

  test("the list of all users is one round trip and reads each row once, and at most 1,001 rows", async () => {
    const crowd = await newTeam();
    const list = async (count: number, first: number) => {
      await fill(crowd, "users", count, first);
      const { response, byResponse } = await send("GET /auth/v1/users", "/auth/v1/users", { token: crowd.token });
      expect(byResponse.trips).toBe(1);
      expect(byResponse.rowsRead).toBeLessThanOrEqual(MAX_LISTED_USERS + 1 + CREDENTIAL_ROWS);
      return response;
    };
    const users = (await (await list(MAX_LISTED_USERS, 1)).json()) as unknown[];
    expect(users).toHaveLength(MAX_LISTED_USERS);
    expect((await list(500, MAX_LISTED_USERS + 1)).status).toBe(400);
  });

  test("a session reads as many rows with 3,000 expired sessions of its key as with none, and a list at most 1,000", async () => {
    const [crowd, other] = [await newTeam(undefined, 0), await newTeam(undefined, 0)];
    const route = "/auth/v1/sessions";
    await DB.prepare(
      `insert into api_keys (id, team_id, uuid, name, kind, scopes, token_hash, created_by_key_id, lifetime_milliseconds, created_at, expires_at)
       with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000)
       select printf('f%020x000', i), ?1, 'u', 'a', 'session', 2, ?1 || i, ?2, 1, 1, 1 from n`,
    )
      .bind(crowd.teamId, crowd.keyId)
      .run();
    for (let i = 0; i < 3; i++) {
      const { byResponse: withExpired } = await send(`POST ${route}`, route, { token: crowd.token });
      const { byResponse: without } = await send(`POST ${route}`, route, { token: other.token });
      // Two counts end at the first row of the next key.
      expect(withExpired.rowsRead).toBeLessThanOrEqual(without.rowsRead + 2);
    }
    const listed: unknown[][] = [];
    for (let path = route; path !== ""; ) {
      const { response, byResponse } = await send(`GET ${route}`, path, { token: crowd.token });
      expect(byResponse.rowsRead).toBeLessThanOrEqual(1000);
      listed.push(((await response.json()) as { data: unknown[] }).data);
      path = /<(.*)>/.exec(response.headers.get("Link") ?? "")?.[1] ?? "";
    }
    expect(listed.map(({ length }) => length)).toEqual([0, 0, 0, 0, 0, 0, 3]);
  });

  test("the usage of a contributor reads at most 25,000 rows, of the newest 10,000 files and as many in the trash", async () => {
    const crowd = await newTeam(undefined, 0);
    const contributor = await dataOf(
      crowd.call("POST", "/auth/v1/users", { json: { ...account(), role: "contributor" } }),
    );
    await DB.batch([
      insertFiles(crowd, 15_000),
      insertRemoved(crowd, 36_000),
      DB.prepare("update files set user_id = ? where team_id = ?").bind(contributor._id, crowd.teamId),
      DB.prepare("update removed set user_id = ? where team_id = ?").bind(contributor._id, crowd.teamId),
    ]);
    const token = await newSession(crowd, contributor._id);
    const { response, byResponse } = await send("GET /docs/v1/usage", "/docs/v1/usage", { token });
    expect(await response.json()).toMatchObject({ data: { files: 20_000, bytes: 20_000, trashFiles: 10_000 } });
    expect(byResponse.rowsRead).toBeLessThanOrEqual(25_000);
  });

  test.each([
    [ROWS - 10, 1],
    [10, 0],
  ])(
    "the export of user %i examines the team's latest 8,000 events, and reads at most 25,000 rows",
    async (row, count) => {
      const path = `/auth/v1/users/${idAt(row)}/export`;
      const { result, inTotal } = await watched(async (bindings, ctx) => {
        const { body } = await app.fetch(buildRequest("GET", path, { token: large.token }), bindings, ctx);
        return JSON.parse(await new Response(body).text());
      });
      expect(result.data).toMatchObject({
        events: Array(count).fill({ actor: { userId: idAt(row) } }),
        hasOlderEvents: true,
      });
      expect(inTotal.rowsRead).toBeLessThanOrEqual(25_000);
    },
  );

  test("a key in a team with 1,000 keys reads few of them, whether these are live or expired", async () => {
    const crowd = await newTeam();
    const create = () => send("POST /auth/v1/apikeys", "/auth/v1/apikeys", { token: crowd.token, json: { name: "a" } });
    const few = (await create()).byResponse.rowsRead;
    await fill(crowd, "api_keys", MAX_TEAM_KEYS - 2);
    const full = await create();
    expect(full.response.status).toBe(409);
    expect(full.byResponse.rowsRead).toBeLessThanOrEqual(few);
    await DB.prepare("update api_keys set expires_at = 1 where team_id = ? and id <> ?")
      .bind(crowd.teamId, crowd.keyId)
      .run();
    const replacing = await create();
    expect(replacing.response.status).toBe(200);
    expect(replacing.byResponse.rowsRead).toBeLessThanOrEqual(2 * few);
  });

  test.each([
    // The second row is the credential again: whether the caller sees only its own files.
    ["GET /docs/v1/uploads/{id}", 2],
    ["GET /auth/v1/users/{id}", 1],
    ["GET /docs/v1/uploads/{id}/metadata", 2],
    // It is authorized before.
    ["GET /docs/v1/usage", 3 + AUTHORIZATION_ROWS],
    ["DELETE /docs/v1/uploads/{id}", 26],
    // They read the row for the refusal, too, and an update reads the caller again.
    ["PATCH /auth/v1/users/{id}", 11],
    // Also the user's webhooks, before and after they are disabled, and the folders.
    ["DELETE /auth/v1/users/{id}", 23],
  ])("%s reads the credential and at most %i rows", async (route, rows) => {
    const path = (route.split(" ")[1] ?? "").replace("{id}", idAt(50_003));
    const json = route.startsWith("PATCH") ? { firstName: "Ada" } : undefined;
    const { response, inTotal } = await send(route, path, { token: large.token, json });
    expect(response.status).toBe(200);
    expect(inTotal.rowsRead).toBeLessThanOrEqual(rows + CREDENTIAL_ROWS);
  });

  test("the end of a key or a session reads none of the form uploads in progress", async () => {
    const { id: key } = await newKey(large);
    const { id: session } = await dataOf(large.call("POST", "/auth/v1/sessions", { json: {} }));
    for (const path of [`/auth/v1/apikeys/${key}`, `/auth/v1/sessions/${session}`]) {
      const { response, inTotal } = await send(`DELETE ${path.replace(/[^/]+$/, "{id}")}`, path, {
        token: large.token,
      });
      expect(response.status).toBe(200);
      expect(inTotal.rowsRead, path).toBeLessThanOrEqual(20 + CREDENTIAL_ROWS);
    }
  });
});

describe("With files at the limits of all properties", () => {
  const FILES = 1100;
  let large: Team;

  beforeAll(async () => {
    large = await newTeam(undefined, 0);
    const audio = { durationSeconds: 1, tags: { title: "\u6f22".repeat(500), artist: "\u6f22".repeat(500) } };
    const tags = Array.from({ length: MAX_TAGS }, (_, i) => `${i}`.padEnd(MAX_TAG_LENGTH, "\u{1f3b5}"));
    await DB.prepare(
      `insert into files (etag, mime_type, id, team_id, key_id, original_name, name_key, status, file_type, folder, reference, tags, metadata, audio,
         reserved_bytes, size_bytes, processed_at, created_at, updated_at)
       with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
       select 'x', '', printf('%024x', i), ?2, ?2, ?3 || i, ?3 || i, 'completed', 'audio file', ?4, ?5, ?6, ?7, ?8, 1, 1, 1, 1, 1 from n`,
    )
      .bind(
        ...[FILES, large.teamId, "n".repeat(190), "f".repeat(MAX_FOLDER_BYTES), "r".repeat(MAX_REFERENCE_LENGTH)],
        ...[JSON.stringify(tags), JSON.stringify({ a: "m".repeat(MAX_METADATA_BYTES - 8) }), JSON.stringify(audio)],
      )
      .run();
  });

  test.each([
    ["limit=1&page=1000", 1001],
    ["sort=name&limit=1&page=1000", 2002],
    [`folder=${"f".repeat(MAX_FOLDER_BYTES)}&limit=1&page=1000`, 2002],
    ["sort=name&fileType=video+file", 1000],
    ["sort=name&tag=unknown", 1000],
  ])("GET /docs/v1/uploads?%s reads at most %i rows", async (query, rows) => {
    const path = `/docs/v1/uploads?${query}`;
    const { response, byResponse } = await send("GET /docs/v1/uploads", path, { token: large.token });
    expect(response.status).toBe(200);
    expect(byResponse.rowsRead).toBeLessThanOrEqual(rows + 2 * CREDENTIAL_ROWS);
  });

  test("a row begins with the columns that lists compare, and ends with its long texts", async () => {
    const { results } = await env.DB.prepare("select name from pragma_table_info('files')").all<{ name: string }>();
    const names = results.map(({ name }) => name);
    expect(names.slice(0, 6)).toEqual(["id", "team_id", "status", "file_type", "size_bytes", "processed_at"]);
    expect(names.slice(-5)).toEqual(["tags", "metadata", "search_keys", "audio", "hold"]);
  });
});

const newContributor = async () => newSession(team, await newUser({ ...account(), role: "contributor" }));
/** The kinds of callers, with their tokens. Queries differ by the kind of token, the role, and whether a caller sees all files. */
const CALLERS = {
  "a secret key": async () => team.token,
  "a public key": async () => publicToken,
  "an upload token": async () => (await newUploadToken(team, { maxFiles: 100 })).token,
  "an upload token of a contributor": async () =>
    (await issueToken(as(await newContributor()), { maxFiles: 100 })).token,
  "an admin": async () => newSession(team, await newUser({ ...account(), role: "admin" })),
  "a member": async () => newSession(team, await newUser({ ...account(), role: "member" })),
  "a contributor": newContributor,
  "a key of a contributor": async () => {
    const user = await newUser({ ...account(), role: "admin" });
    const { key } = await newKey(as(await newSession(team, user)));
    await team.call("PATCH", `/auth/v1/users/${user}`, { json: { role: "contributor" } });
    return key;
  },
  "a session of a key": async () => (await openSession(team.token)).key,
  "a viewer": async () => newSession(team, await newUser({ ...account(), role: "viewer" })),
  "the operator": async () => OPERATOR,
} satisfies Record<string, () => Promise<string>>;
type Caller = keyof typeof CALLERS;
/** Their queries are those of an admin, or of a contributor, with another credential. */
const REPEATED: readonly Caller[] = [
  "a member",
  "a viewer",
  "a session of a key",
  "a key of a contributor",
  "an upload token of a contributor",
];
const CALLER_NAMES = (Object.keys(CALLERS) as Caller[]).filter((name) => isExhaustive || !REPEATED.includes(name));
/** The team as another caller calls it. */
const as = (token: string): Team => ({
  ...team,
  token,
  call: (method, path, options) => team.call(method, path, { token, ...options }),
});

describe("With 20,000 files of another team", () => {
  const FOREIGN_FILES = 20_000;
  beforeAll(async () => {
    const other = await newTeam(undefined, databaseOf(team.teamId));
    await DB.prepare(
      `insert into files (etag, mime_type, file_type, id, team_id, key_id, original_name, name_key, status, reserved_bytes, size_bytes, created_at, updated_at)
       with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
       select 'x', '', 'audio file', printf('%024x', i), ?2, ?2, 'a', 'a', 'completed', 1, 1, 1, 1 from n`,
    )
      .bind(FOREIGN_FILES, other.teamId)
      .run();
  });

  // Each reads counters. One with an upload token also counts the files and the unfinished uploads of the token, twice: to say why
  // it is refused, and in the condition of the insert.
  const limits: [Caller, number, number][] = [
    ["a secret key", 24, 30],
    ["a public key", 19, 40],
    ["an upload token", 19, 90],
    ["an upload token of a contributor", 19, 90],
    ["an admin", 24, 30],
    ["a member", 24, 30],
    ["a contributor", 24, 30],
    ["a key of a contributor", 24, 30],
    ["a session of a key", 24, 30],
  ];
  test.each(limits)(
    "a creation by %s with %i unfinished uploads reads at most %i rows, also if it is refused",
    async (name, uploads, rows) => {
      const before = team;
      team = await newTeam(undefined, databaseOf(before.teamId));
      publicToken = (await newKey(team, { isPublic: true })).key;
      const token = await CALLERS[name]();
      const route = "POST /docs/v1/uploads/resumable";
      for (let i = 0; i < uploads; i++) expect((await create(as(token).call, 9)).status).toBe(201);
      const counted: { status: number; rowsRead: number }[] = [];
      for (let i = 0; i < 2; i++) {
        const options = { token, headers: tusHeaders({ "Upload-Length": "9" }) };
        const { response, inTotal } = await send(route, route.split(" ")[1] ?? "", options);
        counted.push({ status: response.status, rowsRead: inTotal.rowsRead });
      }
      const isLimited = /contributor|public|upload token/.test(name);
      expect(counted.map(({ status }) => status)).toEqual([201, isLimited ? 409 : 201]);
      expect(Math.max(...counted.map(({ rowsRead }) => rowsRead))).toBeLessThanOrEqual(rows);
      [team, publicToken] = [before, (await newKey(before, { isPublic: true })).key];
    },
  );
});

test("a creation for which one of 2,000 unfinished uploads gives way reads at most 130 rows", async () => {
  const before = team;
  team = await newTeam();
  const { teamId } = team;
  const columns = `file_id, team_id, key_id, is_public, visitor_id, original_name, secret_hash, size_bytes, progress_at, due_at,
    created_at, updated_at`;
  // Who has the most is not silent, and has all of its uploads read.
  const values = `printf('%024x', i), ?2, 'page', 1, max(i, 20), 'a.mp3', '', 1000, iif(i <= 20, 4e15, i), 4e15, 1, 1`;
  await insertMany(2000, `insert into uploads (${columns}) select ${values} from n`, teamId);
  const token = (await newKey(team, { isPublic: true })).key;
  const options = { token, headers: tusHeaders({ "Upload-Length": "9" }) };
  const { response, inTotal } = await send("POST /docs/v1/uploads/resumable", "/docs/v1/uploads/resumable", options);
  expect(response.status).toBe(201);
  const left = DB.prepare("select min(file_id) as first from uploads where team_id = ? and progress_at < 4e15");
  expect(await left.bind(teamId).first("first")).toBe((22).toString(16).padStart(24, "0"));
  expect(inTotal.rowsRead).toBeLessThanOrEqual(130);
  team = before;
});

describe("The statements", () => {
  beforeEach(async () => {
    await emptyStores();
    team = await newTeam();
    publicToken = (await newKey(team, { isPublic: true })).key;
  });
  const invitation = async () =>
    (await dataOf(team.call("POST", `/auth/v1/users/${await newUser()}/invitations`))).token;
  type Sending = () => ReturnType<typeof send>;
  const asVisitor = async (url: string, json: object) => send(`POST ${url}`, url, { json });
  /** The operations that need more than the example of their contract. */
  const SPECIAL: { [Id in OperationId]?: Sending } = {
    logIn: async () => {
      const json = account();
      await send("POST /auth/v1/users", "/auth/v1/users", { token: team.token, json });
      return asVisitor("/auth/v1/login", { ...json, teamId: team.teamId });
    },
    logOut: async () => send("POST /auth/v1/logout", "/auth/v1/logout", { token: (await openSession(team.token)).key }),
    describeInvitation: async () => asVisitor("/auth/v1/invitations/describe", { token: await invitation() }),
    acceptInvitation: async () =>
      asVisitor("/auth/v1/invitations/accept", { token: await invitation(), password: account().password }),
    forgotPassword: async () => {
      const json = account();
      await newUser(json);
      return asVisitor("/auth/v1/password/forgot", { teamId: team.teamId, email: json.email });
    },
    changePassword: async () => {
      const json = account();
      const token = await newSession(team, await newUser(json));
      const passwords = { currentPassword: json.password, newPassword: "staple horse battery" };
      return send("POST /auth/v1/me/password", "/auth/v1/me/password", { token, json: passwords });
    },
    uploadFile: () => put(),
    createTeam: async () => {
      // The log of the operator has an event, as it always has but for the first team.
      await sendExample(operations.createTeam.route, team);
      return sendExample(operations.createTeam.route, team);
    },
    // With the waveform of the file.
    describeLink: async () => sendLinkOf(await newRecord(team, routeNamed("GET /docs/v1/uploads/{id}/waveform")), true),
    openLink: async () => sendLinkOf((await put()).id),
    openTranscript: async () =>
      sendTranscriptOf(await newRecord(team, routeNamed("GET /docs/v1/uploads/{id}/transcript"))),
  };
  const sendFirst = (id: OperationId): ReturnType<Sending> => {
    const special = SPECIAL[id];
    if (special) return special();
    const { route } = operations[id];
    // The last one of a route does the most, such as to complete the upload.
    const [name, prepare] = RESUMABLE.findLast(([name]) => name === route) ?? [];
    return name && prepare ? sendResumable(name, prepare) : sendExample(route, team);
  };
  test.each(Object.keys(operations) as OperationId[])("of %s are those of its file", async (id) => {
    const { response, roundTrips, byResponse } = await sendFirst(id);
    expect(response.ok).toBe(true);
    const text = await describeStatements(`${id}: ${operations[id].route}`, roundTrips, byResponse);
    await expect(text).toMatchFileSnapshot(`../all/statements/${id}.sql`);
  });
});

describe("Every query of the service", () => {
  /** In `npm test`, the queries of a secret key are those of the tests above. */
  const callers = CALLER_NAMES.filter((name) => isExhaustive || name !== "a secret key");
  /** The operations that each kind of caller has called. */
  const called = new Set<string>();

  /** Calls each operation as this kind of caller, for its own record if it can create one. */
  async function sendAs(name: Caller): Promise<void> {
    const token = await CALLERS[name]();
    const own = name === "the operator" ? team : as(token);
    const sendOne = async (route: string, path: string, options: CallOptions) => {
      await watched(async (bindings, ctx) =>
        app.fetch(buildRequest(route.split(" ")[0] ?? "", path, options), bindings, ctx),
      );
      called.add(`${route} by ${name}`);
    };
    const reply = vi.spyOn(globalThis, "fetch").mockImplementation(async () => new Response("ok"));
    for (const route of routes) {
      const id = route.path.includes("{id}") ? await newRecord(own, route).catch(() => newRecord(team, route)) : "";
      await sendOne(route.name, pathTo(route, id ?? ""), { ...requestFor(route), token });
    }
    const { token: ofTeam } = team;
    const { body } = await team.call("POST", `/docs/v1/uploads/${(await put()).id}/links`, { json: {}, token: ofTeam });
    const { pathname } = new URL(body.data.url);
    await sendOne("GET /docs/v1/links/{link}/{name}", pathname, { token });
    const link = pathname.split("/").slice(0, -1).join("/");
    await sendOne("GET /docs/v1/links/{id}.{secret}", link, { token });
    await sendOne("GET /docs/v1/links/{link}/transcript/{name}", `${link}/transcript/a.vtt`, { token });
    for (const [route, , { trips }] of RESUMABLE) {
      const isCreation = trips === 0 || route === "POST /docs/v1/uploads/resumable";
      const created = isCreation
        ? null
        : await create(own.call, 9).then((answer) => (answer.status === 201 ? answer : create(team.call, 9)));
      const path = created ? locationOf(created) : (route.split(" ")[1] ?? "");
      const bytes = { "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream", "Content-Length": "4" };
      const headers = isCreation
        ? { "Upload-Length": "9" }
        : route.startsWith("PATCH")
          ? bytes
          : { "X-HTTP-Method-Override": "HEAD" };
      const isAppending = route.startsWith("PATCH");
      await sendOne(route, path, {
        token,
        headers: tusHeaders(headers),
        ...(isAppending && { body: new Uint8Array(4) }),
      });
    }
    const passwords = { currentPassword: account().password, newPassword: "staple horse battery" };
    await sendOne("POST /auth/v1/me/password", "/auth/v1/me/password", { token, json: passwords });
    await sendOne("POST /auth/v1/logout", "/auth/v1/logout", { token });
    reply.mockRestore();
  }

  beforeAll(async () => {
    await sendRemainingRoutes();
    await sendRemainingQueries();
    for (const name of callers) {
      const before = team;
      // Limits of a team, such as that of webhooks, must not refuse what follows.
      team = await newTeam(undefined, databaseOf(before.teamId));
      publicToken = (await newKey(team, { isPublic: true })).key;
      await sendAs(name);
      team = before;
    }
  });

  test("is sent by each kind of caller, for every operation", () => {
    const expected = Object.values(operations).flatMap(({ route }) => callers.map((name) => `${route} by ${name}`));
    expect([...called].sort()).toEqual(expected.sort());
  });

  test("is sent by this file, which calls every operation", () => {
    expect([...driven].sort()).toEqual(
      Object.values(operations)
        .map(({ route }) => route)
        .sort(),
    );
  });

  test("searches by an index, without a scan or a temporary B-tree", async () => {
    const last = new Map(queries.map(({ sql, parameters }) => [sql, parameters]));
    const plans = await Promise.all(
      [...last].map(async ([sql, parameters]) => ({ sql, plan: await explain(sql, parameters) })),
    );
    const { results: tables } = await env.DB.prepare(
      "select name from sqlite_schema where type = 'table' and name not like 'd1!_%' escape '!' and name not like '!_%' escape '!' and name not like 'sqlite!_%' escape '!'",
    ).all<{ name: string }>();
    const unread = tables.filter(({ name }) => !plans.some(({ sql }) => sql.includes(`"${name}"`)));
    expect(unread, "tables without a query").toEqual([]);
    expect(plans.filter(({ plan }) => plan.some((step) => isExpensive(step) && !isBoundedSort(step, plan)))).toEqual(
      [],
    );
  });

  test("of a request searches no index of the recovery job, which has the rows of all teams", async () => {
    const last = new Map(
      queries.filter((query) => !ofRecovery.has(query)).map(({ sql, parameters }) => [sql, parameters]),
    );
    for (const [sql, parameters] of last) {
      const plan = await explain(sql, parameters);
      expect(
        plan.filter((step) => /INDEX \w+_(due|expiry|expiring|retention|encrypted_with) \((?!team_id)/.test(step)),
        sql,
      ).toEqual([]);
    }
  });

  test("searches by an index if a trigger sends it", async () => {
    const triggers = env.DB.prepare("select sql from sqlite_schema where type = 'trigger'");
    const { results } = await triggers.all<{ sql: string }>();
    const bodies = results.flatMap(({ sql }) => /BEGIN(.*)END/s.exec(sql)?.[1]?.split(";").slice(0, -1) ?? []);
    expect(bodies).not.toEqual([]);
    // RAISE reads nothing, and is allowed only in a trigger.
    for (const sql of bodies.filter((body) => !body.includes("RAISE"))) {
      const plan = await explain(sql.replaceAll(/\b(old|new)\.\w+/g, "'1'"), []);
      expect(plan.filter(isExpensive), sql).toEqual([]);
    }
  });
});

/**
 * Each operation's statements until its response, one file each: run `npm run statements` after a change of SQL, and read the diff.
 * Each finds only its own team, so that the rows are the same in each run: the operator's lists read those of all teams.
 */
/** A LIMIT bounds the files that a list sorts. A window function reads a subquery, whose own plan the check covers. */
const isBoundedSort = (step: string, plan: string[]) =>
  step === "USE TEMP B-TREE FOR ORDER BY" && (plan.includes("SCAN sorted") || plan.includes(OF_VISITOR));
/** A visitor has at most 20 unfinished uploads, of which one is chosen. */
const OF_VISITOR = "SEARCH uploads USING INDEX uploads_unfinished (team_id=? AND key_id=? AND visitor_id=?)";

// A LIMIT bounds the rows of `examined`, `matching` and `last`, which are parts of a list with filters, and of `newest`. `page` is the one row
// of a purge's aggregate, and `used` that of the files of an upload token. `oldest` are the rows that it checks, which a LIMIT bounds as well.
const isExpensive = (step: string) =>
  /^SCAN (?!CONSTANT ROW|json_each|one$|page$|used$|oldest$|examined|newest$|found$|\(subquery-\d+\)$|sorted$|tagged$|team$|child$|matching|last)|USE TEMP B-TREE/.test(
    step,
  );

/** The plans by the text of the query, on which alone they depend. */
const explained = new Map<string, string[]>();

async function explain(sql: string, parameters: unknown[]): Promise<string[]> {
  const known = explained.get(sql);
  if (known) return known;
  const { results } = await env.DB.prepare(`explain query plan ${sql}`)
    .bind(...parameters)
    .all<{ detail: string }>();
  const plan = results.map(({ detail }) => detail);
  explained.set(sql, plan);
  return plan;
}

/** Calls the operations that no test above has called: most of them, if only the tests below run. */
async function sendRemainingRoutes() {
  for (const { name } of exampleRoutes) if (!driven.has(name)) await sendExample(name);
  for (const [route, prepare] of RESUMABLE) if (!driven.has(route)) await sendResumable(route, prepare);
  const { id } = await put();
  await runJobs([id]);
  for (const isPage of [false, true]) await sendLinkOf(id, isPage);
  const { key: token } = await openSession(team.token);
  await send("POST /auth/v1/logout", "/auth/v1/logout", { token });
}

/** Sends the queries that no call of an example sends: the operator's, conditional ones, failures, and the recovery job's. */
async function sendRemainingQueries() {
  const operator = { token: OPERATOR };
  await send("GET /auth/v1/apikeys", `/auth/v1/apikeys?teamId=${team.teamId}`, operator);
  await send("GET /auth/v1/apikeys/{id}", `/auth/v1/apikeys/${team.keyId}`, operator);
  const { response } = await send("POST /auth/v1/apikeys", "/auth/v1/apikeys", {
    ...operator,
    json: { name: "temporary" },
  });
  const { data } = (await response.json()) as { data: { id: string } };
  await send("DELETE /auth/v1/apikeys/{id}", `/auth/v1/apikeys/${data.id}`, operator);
  await send("GET /auth/v1/events", `/auth/v1/events?teamId=${team.teamId}&order=asc`, operator);
  await send("GET /auth/v1/events/{id}", `/auth/v1/events/${"0".repeat(24)}?teamId=${team.teamId}`, operator);

  const json = account();
  const user = await newUser(json);
  const path = `/auth/v1/users/${user}`;
  const ifMatch = { token: team.token, headers: { "If-Match": '"0", "1"' } };
  await send("PATCH /auth/v1/users/{id}", path, { ...ifMatch, json: { firstName: "Ada" } });
  // Under a new master key, a login rehashes the password, and the recovery job re-encrypts tokens.
  const MASTER_KEY = `${btoa("another".padEnd(32, "."))},${env.MASTER_KEY}`;
  const login = { json: { ...json, teamId: team.teamId } };
  await send("POST /auth/v1/login", "/auth/v1/login", login, { MASTER_KEY });
  const token = await newSession(team, user);
  await watched(async (bindings, ctx) => {
    const { body } = await app.fetch(buildRequest("GET", `${path}/export`, { token: team.token }), bindings, ctx);
    await new Response(body).text();
  });
  const passwords = { currentPassword: json.password, newPassword: "staple horse battery" };
  await send("POST /auth/v1/me/password", "/auth/v1/me/password", { token, json: passwords });
  await DB.prepare("update api_keys set expires_at = 1 where user_id = ?").bind(user).run();
  await send("DELETE /auth/v1/users/{id}", path, ifMatch);

  // An upload that ends early.
  const truncated = "--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nhalf";
  const headers = { "Content-Type": "multipart/form-data; boundary=b" };
  await send("POST /docs/v1/uploads", "/docs/v1/uploads", { token: team.token, body: truncated, headers });

  const ids: string[] = [];
  for (let i = 0; i < 5; i++) ids.push((await put()).id);
  const unreachable = () => Promise.reject(new Error("unreachable"));
  const failingBucket = { head: unreachable, delete: unreachable } as unknown as R2Bucket;
  await runJobs(ids.slice(0, 1), "stowage-jobs", { BUCKET: failingBucket });
  await runJobs(ids.slice(0, 1), "stowage-jobs-dead");
  await send(
    "DELETE /docs/v1/uploads/{id}",
    `/docs/v1/uploads/${ids[4]}`,
    { token: team.token },
    { BUCKET: failingBucket },
  );
  const states = ["pending", "processing"];
  await DB.batch([
    ...states.map((state, i) =>
      DB.prepare("update files set status = ?, due_at = 1 where id = ?").bind(state, ids[i + 1]),
    ),
    DB.prepare("update removed set due_at = 1 where id = ?").bind(ids[4]),
    DB.prepare("update api_keys set expiry_notice_at = 1 where id = ?").bind(team.keyId),
    DB.prepare(
      `insert into uploads (file_id, team_id, key_id, is_public, original_name, size_bytes, due_at, created_at, updated_at)
       values (?, ?, 'k', 0, 'a.mp3', 1, 1, 1, 1)`,
    ).bind(ids[3]?.replace(/^./, "f"), team.teamId),
  ]);
  await recover({ MASTER_KEY });
}
