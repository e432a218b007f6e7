import { describe, expect } from "vitest";
import { JSON_BODY_BYTES } from "../../src/http/validation.ts";
import { BODY_BYTES, Bodies } from "../../src/platform/bodies.ts";
import { MemoryBudget } from "../../src/platform/part.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  type Answer,
  type CallOptions,
  compose,
  newKey,
  newMember,
  OPERATOR,
  pausedStream,
  snapshot,
  startWorker,
  type Team,
  type TestWorker,
  upload,
  usageOf,
  withoutJobs,
  withoutLimits,
} from "../support/harness.ts";
import { jsonRoutes, newRecord, pathTo, type Route, requestFor } from "../support/routes.ts";
import { create, head, locationOf, tusHeaders } from "../support/tus.ts";

/* Callers that begin a request, lose their access, and then send the rest of the body. */

let aheadMilliseconds = 0;
const UPLOADS = "/docs/v1/uploads";
const worker = startWorker(
  compose(withoutLimits, withoutJobs, (deps) => ({
    ...deps,
    system: { ...deps.system, now: () => Date.now() + aheadMilliseconds },
  })),
);

/** Sends a body whose last byte follows after `meanwhile`, and after more than a second. */
async function sendSlowly(
  method: string,
  path: string,
  {
    token,
    json,
    body = JSON.stringify(json),
    headers = {},
  }: { token: string; json?: unknown; body?: string; headers?: object },
  meanwhile: () => Promise<unknown>,
): Promise<Answer> {
  const whilePaused = async () => {
    await meanwhile();
    aheadMilliseconds += 1001;
  };
  return worker.call(method, path, {
    token,
    body: pausedStream([body.slice(0, -1), body.slice(-1)], whilePaused),
    headers: { "Content-Type": "application/json", ...headers },
  });
}

/** Ways to end the access of a caller. */
const endings: Record<string, (team: Team, caller: { token: string; userId: string }) => Promise<unknown>> = {
  "its session ends": (_, { token }) =>
    DB.prepare("delete from api_keys where token_hash = ?").bind(fingerprint(token)).run(),
  "its user is demoted": (team, { userId }) =>
    team.call("PATCH", `/auth/v1/users/${userId}`, { json: { role: "viewer" } }),
  "its team is suspended": ({ teamId, call }) =>
    call("PATCH", `/auth/v1/teams/${teamId}`, { token: OPERATOR, json: { status: "suspended" } }),
};

/** Stores nothing: its token depends on the caller whenever it is used. */
const ISSUE = "/docs/v1/uploadtokens";
const writes = jsonRoutes.filter(
  ({ operation: { access }, path }) =>
    access !== null && access !== "operator" && path !== ISSUE && !path.startsWith("/auth/v1/teams"),
);

describe("A write whose body arrives slowly", () => {
  test.for(Object.keys(endings))("changes nothing if %s meanwhile", async (ending, { team }) => {
    for (const route of writes) {
      // A viewer still creates links.
      if (ending === "its user is demoted" && route.operation.access === "files:download") continue;
      await team.call("PATCH", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, json: { status: "active" } });
      const { id: userId, token } = await newMember(team, "admin");
      const id = route.path.includes("{id}") ? await newRecord(team, route as Route) : "";
      let before: unknown;
      const answer = await sendSlowly(
        route.method,
        pathTo(route, id),
        { token, json: requestFor(route as Route).json },
        async () => {
          await endings[ending]?.(team, { token, userId });
          before = await snapshot(team.teamId);
        },
      );
      expect([401, 403], route.name).toContain(answer.status);
      expect(await snapshot(team.teamId), route.name).toEqual(before);
    }
  });

  test.for(Object.keys(endings))(
    "issues an upload token that does not work if %s meanwhile",
    async (ending, { team }) => {
      const { id: userId, token } = await newMember(team, "admin");
      const { body } = await sendSlowly("POST", ISSUE, { token, json: {} }, async () =>
        endings[ending]?.(team, { token, userId }),
      );
      const { status } = await create(team.call, 9, {}, { token: body.data.token });
      expect([401, 403]).toContain(status);
      expect(await snapshot(team.teamId)).toMatchObject({ files: [], uploads: [], objects: [] });
    },
  );

  test("is done if the caller keeps its access, and unavailable if it sees other files by then", async ({ team }) => {
    const { id, token } = await newMember(team, "admin");
    const own = await upload({ ...team, call: (m, p, o) => team.call(m, p, { token, ...o }) }, "a.txt", "a");
    const theirs = await upload(team, "a.txt", "a");
    const setRole = (role: string) => team.call("PATCH", `/auth/v1/users/${id}`, { json: { role } });
    const rename = (file: string, role: string) =>
      sendSlowly("PATCH", `/docs/v1/uploads/${file}`, { token, json: { name: "b" } }, () => setRole(role));
    for (const [role, status] of [
      ["member", 200],
      ["contributor", 503],
    ] as const) {
      for (const file of [own, theirs]) {
        await setRole("admin");
        expect((await rename(file, role)).status).toBe(status);
      }
    }
  });

  test("as a form upload stores nothing if the caller's access ends before the file begins", async ({ team }) => {
    const part = (name: string, text: string) => `--b\r\nContent-Disposition: form-data; name="${name}"${text}\r\n`;
    const [start, rest] = [part("note", "\r\n\r\nn"), `${part("file", '; filename="a.txt"\r\n\r\nbytes')}--b--\r\n`];
    for (const ending of Object.keys(endings)) {
      await team.call("PATCH", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, json: { status: "active" } });
      const { id: userId, token } = await newMember(team, "admin");
      const whilePaused = async () => {
        await endings[ending]?.(team, { token, userId });
        aheadMilliseconds += 1001;
      };
      const headers = { "Content-Type": "multipart/form-data; boundary=b" };
      const body = pausedStream([start, rest], whilePaused);
      const answer = await worker.call("POST", "/docs/v1/uploads", { token, body, headers });
      expect([401, 403], ending).toContain(answer.status);
      expect(await snapshot(team.teamId)).toMatchObject({ files: [], objects: [] });
    }
  });
});

const FORM = { "Content-Type": "multipart/form-data; boundary=b" };
const BEGIN = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n';

describe("A form upload that trickles", () => {
  interface Sender {
    team: Team;
    token: string;
    keyId: string;
    userId: string;
    uploadId: string;
  }
  const cancelings: [string, number, (sender: Sender) => Promise<unknown>][] = [
    [
      "its upload is canceled",
      404,
      ({ team, uploadId }) => team.call("DELETE", `${UPLOADS}/${uploadId}?unfinished=true`),
    ],
    ["its session ends", 401, ({ token }) => worker.call("POST", "/auth/v1/logout", { token })],
    ["its user is deleted", 401, ({ team, userId }) => team.call("DELETE", `/auth/v1/users/${userId}`)],
    [
      "its team is deleted",
      401,
      ({ team }) => team.call("DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR }),
    ],
  ];

  /** Sends a form of which each step sends some bytes, and calls `meanwhile` once some have arrived. */
  async function trickle(
    team: Team,
    token: string,
    meanwhile: (uploadId: string) => Promise<unknown>,
    idempotencyKey = "",
  ) {
    const held: unknown[] = [];
    const reserved = async () =>
      (await DB.prepare("select status from uploads where team_id = ?").bind(team.teamId).all()).results;
    const steps = [
      async () => `${BEGIN}first`,
      async () => "second",
      async () => {
        const [row] = (
          await DB.prepare("select file_id as id from uploads where team_id = ?")
            .bind(team.teamId)
            .all<{ id: string }>()
        ).results;
        await meanwhile(row?.id ?? "");
        held.push(await reserved());
        aheadMilliseconds += 10_001;
        return "third";
      },
      // The body continues, and its bytes are discarded.
      async () => {
        held.push(await reserved());
        return "fourth";
      },
      async () => "\r\n--b--\r\n",
    ];
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const step = steps.shift();
          if (step) controller.enqueue(new TextEncoder().encode(await step()));
          else controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    const headers = { ...FORM, ...(idempotencyKey && { "Idempotency-Key": idempotencyKey }) };
    return { answer: await worker.call("POST", UPLOADS, { token, body, headers }), held };
  }

  test.for(cancelings)(
    "ends within ten seconds once %s, and gives its quota back then",
    async ([, status, end], { team }) => {
      const { id: userId, token } = await newMember(team, "admin");
      for (const idempotencyKey of ["", "k"]) {
        if (idempotencyKey && status === 401) break;
        const { answer, held } = await trickle(
          team,
          token,
          (uploadId) => end({ team, token, keyId: "", userId, uploadId }),
          idempotencyKey,
        );
        expect(answer.status, answer.text).toBe(status);
        expect(held, "holds its quota until it looks").toMatchObject([[{}], []]);
        expect(await snapshot(team.teamId)).toMatchObject({ files: [], uploads: [], objects: [] });
      }
    },
  );

  test("ends within ten seconds once the public key is deleted that sends it", async ({ team }) => {
    const page = await newKey(team, { isPublic: true });
    const { answer, held } = await trickle(team, page.key, () => team.call("DELETE", `/auth/v1/apikeys/${page.id}`));
    expect([answer.status, answer.code]).toEqual([401, "token_invalid"]);
    expect(held, "holds its quota until it looks").toMatchObject([[{ status: "receiving" }], []]);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  });

  test("is stored if nothing happens meanwhile, and is in the list of unfinished uploads until then", async ({
    team,
  }) => {
    const lists: unknown[] = [];
    const { answer } = await trickle(team, team.token, async (uploadId) => {
      const { body } = await team.call("GET", `${UPLOADS}/resumable`);
      lists.push(body.data);
      expect(body.data).toMatchObject([{ _id: uploadId, name: "a.txt", kind: "form", status: "receiving", offset: 0 }]);
    });
    expect(answer.status).toBe(200);
    expect(lists).toHaveLength(1);
    expect((await team.call("GET", `${UPLOADS}/resumable`)).body.data).toEqual([]);
  });
});

const APPENDING = { "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream" };

describe("A request that appends to an upload", () => {
  test("stores no more bytes once its key is revoked, also to the upload of another key", async ({ team }) => {
    const path = locationOf(await create(team.call, 10));
    const page = await newKey(team, { isPublic: true });
    const revoke = () => team.call("DELETE", `/auth/v1/apikeys/${page.id}`);
    const body = pausedStream(["1234", "5678"], revoke);
    const headers = tusHeaders(APPENDING);
    const answer = await worker.call("PATCH", path, { token: page.key, headers, body });
    expect([answer.status, answer.code]).toEqual([401, "token_invalid"]);
    const { headers: progress } = await head(team.call, path);
    expect(progress.get("Upload-Offset")).toBe("0");
    const rest = await team.call("PATCH", path, { headers, body: new TextEncoder().encode("1234567890") });
    expect(rest.status).toBe(204);
  });

  test("gives the quota of an upload that is canceled meanwhile back when it ends", async ({ team }) => {
    for (const cancel of [
      (path: string) => team.call("DELETE", path, { headers: { "Tus-Resumable": "1.0.0" } }),
      async (_: string, keyId: string) => team.call("DELETE", `/auth/v1/apikeys/${keyId}`),
    ]) {
      const key = await newKey(team);
      const path = locationOf(await create(team.call, 10, {}, { token: key.key }));
      const body = pausedStream(["1234", "5678"], async () => {
        await cancel(path, key.id);
        expect(await usageOf(team), "the request may still store bytes").toMatchObject({ files: 1, bytes: 10 });
      });
      const answer = await worker.call("PATCH", path, { headers: tusHeaders(APPENDING), body, token: team.token });
      expect(answer.status).toBe(404);
      expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
      expect(await snapshot(team.teamId)).toMatchObject({ files: [], uploads: [], parts: [], objects: [] });
    }
  });

  /** Sends this many overlapping requests to an upload. The newest cancels it, and they end from the newest to the oldest. */
  const overlap = async (
    path: string,
    count: number,
    token: string,
    last: () => Promise<unknown>,
  ): Promise<Answer[]> => {
    const answers: Answer[] = [];
    const meanwhile = async () => {
      if (count === 1) await last();
      else answers.push(...(await overlap(path, count - 1, token, last)));
    };
    const body = pausedStream(["1234", "5678"], meanwhile);
    answers.push(await worker.call("PATCH", path, { token, headers: tusHeaders(APPENDING), body }));
    return answers;
  };

  test("is listed after the cancellation until the last of several requests ends, which gives the quota back", async ({
    team,
  }) => {
    for (const count of [2, 3]) {
      const path = locationOf(await create(team.call, 10));
      const answers = await overlap(path, count, team.token, async () => {
        await team.call("DELETE", path, { headers: { "Tus-Resumable": "1.0.0" } });
        const { body } = await team.call("GET", `${UPLOADS}/resumable`);
        expect(body.data).toMatchObject([{ kind: "resumable", status: "canceled", size: 10 }]);
        expect(await usageOf(team), "the requests may still store bytes").toMatchObject({ files: 1, bytes: 10 });
      });
      expect(answers.map(({ status }) => status)).toEqual(Array(count).fill(404));
      expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
      expect(await snapshot(team.teamId)).toMatchObject({ files: [], uploads: [], parts: [], objects: [] });
    }
  });

  test("ends within ten seconds of bytes once the upload is canceled", async ({ team }) => {
    const path = locationOf(await create(team.call, 1000));
    let hasEnded = false;
    const steps = [
      async () => "1",
      async () => "2",
      async () => {
        await team.call("DELETE", path, { headers: { "Tus-Resumable": "1.0.0" } });
        aheadMilliseconds += 10_001;
        return "3";
      },
      async () => {
        hasEnded = (await usageOf(team)).files === 0;
        return "4";
      },
    ];
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const step = steps.shift();
          if (step) controller.enqueue(new TextEncoder().encode(await step()));
          else controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    const answer = await worker.call("PATCH", path, { token: team.token, headers: tusHeaders(APPENDING), body });
    expect([answer.status, hasEnded]).toEqual([404, true]);
  });
});

describe("A JSON body of more than its place in the isolate", () => {
  const TOTAL_BYTES = 1024 * 1024;
  const limitOf = ({ operation }: Pick<Route, "operation">) => operation.maxBodyBytes ?? JSON_BODY_BYTES;
  const larger = jsonRoutes.filter((route) => limitOf(route) > BODY_BYTES);
  const withBudget = (budget: MemoryBudget) =>
    startWorker(compose(withoutLimits, withoutJobs, (deps) => ({ ...deps, bytes: { ...deps.bytes, budget } })));
  const send = async (worker: TestWorker, team: Team, route: Route, whilePaused = async () => {}) => {
    const path = pathTo(route, route.path.includes("{id}") ? await newRecord(team, route) : "");
    const body = Buffer.from(JSON.stringify(requestFor(route).json).padEnd(limitOf(route)));
    const chunks = [body.subarray(0, 100), body.subarray(100, 5000), body.subarray(5000, -1), body.subarray(-1)];
    return worker.call(route.method, path, {
      token: team.token,
      body: pausedStream(chunks, whilePaused),
      headers: { "Content-Type": "application/json" },
    });
  };

  test("counts against the memory budget until it has arrived", async ({ team }) => {
    expect(larger.length).toBeGreaterThan(0);
    for (const route of larger) {
      const budget = new MemoryBudget(TOTAL_BYTES);
      const free = TOTAL_BYTES - (limitOf(route) - BODY_BYTES);
      const answer = await send(withBudget(budget), team, route as Route, async () => {
        const rest = {};
        expect(budget.reserve(rest, free), route.name).toBe(true);
        expect(budget.reserve({}, 1), route.name).toBe(false);
        budget.release(rest);
      });
      expect(answer.status, route.name).toBe(200);
      expect(budget.reserve({}, TOTAL_BYTES), "released").toBe(true);
    }
  });

  test("is refused with 503 without memory, and changes nothing", async ({ team }) => {
    for (const route of larger) {
      let before: unknown;
      const answer = await send(withBudget(new MemoryBudget(0)), team, route as Route, async () => {
        before = await snapshot(team.teamId);
      });
      expect([answer.status, answer.code], route.name).toEqual([503, "unavailable"]);
      expect(await snapshot(team.teamId)).toEqual(before);
    }
  });
});

describe("An isolate that receives many bodies", () => {
  test("rejects those of visitors and without a token with 503, and takes those of teams", async ({ team }) => {
    const bodies = new Bodies();
    const crowded = startWorker(compose(withoutLimits, withoutJobs, (deps) => ({ ...deps, bodies })));
    const page = await newKey(team, { isPublic: true });
    const path = locationOf(await create(team.call, 10, {}, { token: page.key }));
    const slots = Array.from({ length: 320 }, (_, i) =>
      bodies.enter({ isVisitor: true, teamId: null, clientIp: `${i}` }),
    );
    const body = `${BEGIN}bytes\r\n--b--\r\n`;
    const append = { headers: tusHeaders(APPENDING), body: "1234567890" };
    const login = { json: { teamId: team.teamId, email: "a@example.com", password: "long enough" }, token: "" };
    const requests: [string, string, CallOptions][] = [
      ["POST", UPLOADS, { token: page.key, headers: FORM, body }],
      ["PATCH", path, { token: page.key, ...append }],
      ["POST", "/auth/v1/login", login],
    ];
    const before = await snapshot(team.teamId);
    for (const request of requests) {
      const { status, code, headers } = await crowded.call(...request);
      expect([status, code, headers.get("Retry-After")], request[1]).toEqual([503, "unavailable", "5"]);
    }
    expect(await snapshot(team.teamId)).toEqual(before);
    expect((await crowded.call("POST", UPLOADS, { token: team.token, headers: FORM, body })).status).toBe(200);
    expect((await crowded.call("PATCH", `${UPLOADS}/x`, { token: team.token, json: { name: "a" } })).status).toBe(404);
    for (const slot of slots) slot.release();
    const statuses = [];
    for (const request of requests) statuses.push((await crowded.call(...request)).status);
    expect(statuses).toEqual([200, 204, 401]);
    // Each of these has given its place back.
    for (let i = 0; i < 320; i++) bodies.enter({ isVisitor: true, teamId: null, clientIp: `${i}` });
  });
});
