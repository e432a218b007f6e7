import { describe, expect } from "vitest";
import { fingerprint } from "../../src/platform/secrets.ts";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  type Answer,
  compose,
  newKey,
  newMember,
  OPERATOR,
  pausedStream,
  snapshot,
  startWorker,
  type Team,
  upload,
  usageOf,
  withoutJobs,
  withoutLimits,
} from "../support/harness.ts";
import { jsonRoutes, newRecord, pathTo, type Route, requestFor } from "../support/routes.ts";
import { create, head, locationOf, tusHeaders } from "../support/tus.ts";

/* Callers that begin a request, lose their access, and then send the rest of the body. */

let aheadMilliseconds = 0;
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

const writes = jsonRoutes.filter(
  ({ operation: { access }, path }) =>
    access !== "public" && access !== "operator" && !path.startsWith("/auth/v1/teams"),
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

  test("is done if the caller keeps its access, and with the access that it has then", async ({ team }) => {
    const { id, token } = await newMember(team, "admin");
    const own = await upload({ ...team, call: (m, p, o) => team.call(m, p, { token, ...o }) }, "a.txt", "a");
    const theirs = await upload(team, "a.txt", "a");
    const setRole = (role: string) => team.call("PATCH", `/auth/v1/users/${id}`, { json: { role } });
    const rename = (file: string) =>
      sendSlowly("PATCH", `/docs/v1/uploads/${file}`, { token, json: { name: "b" } }, () => setRole("contributor"));
    for (const [file, status] of [
      [own, 200],
      [theirs, 404],
    ] as const) {
      await setRole("admin");
      expect((await rename(file)).status).toBe(status);
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
      expect([404, 409]).toContain(answer.status);
      expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
      expect(await snapshot(team.teamId)).toMatchObject({ files: [], uploads: [], parts: [], objects: [] });
    }
  });
});
