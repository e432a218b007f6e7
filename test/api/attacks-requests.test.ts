import { beforeAll, describe, expect, test } from "vitest";
import {
  form,
  newTeam as foundTeam,
  OPERATOR,
  refused,
  startWorker,
  type Team,
  upload,
  withoutJobs,
} from "../support/harness.ts";

/* What a caller with a good token may try with cursors, paths and headers, to get at what is another's. */

const worker = startWorker(withoutJobs);
const { call } = worker;
const newTeam = () => foundTeam(worker);

let team: Team;
let other: Team;

beforeAll(async () => {
  [team, other] = await Promise.all([newTeam(), newTeam()]);
});

describe("A cursor in the wrong place", () => {
  let page: string;
  let files: Team;

  beforeAll(async () => {
    files = await newTeam();
    for (const name of ["a.txt", "b.txt", "c.txt"]) await upload(files, name, name);
    page = await cursorOf(files);
  });

  async function cursorOf(of: Team, list = "/docs/v1/uploads") {
    const { headers } = await of.call("GET", `${list}?limit=1`);
    return new URL(/<([^>]+)>/.exec(headers.get("Link") ?? "")?.[1] ?? "x:").searchParams.get("cursor") ?? "";
  }

  test("A cursor of another team shows nothing of that team.", async () => {
    for (const name of ["d.txt", "e.txt"]) await upload(other, name, name);
    const { status, body } = await other.call("GET", `/docs/v1/uploads?cursor=${page}`);
    expect(status).toBe(200);
    for (const { teamId } of body.data) expect(teamId).toBe(other.teamId);
  });

  test("A cursor of one list is refused by another list of the same team.", async () => {
    for (const list of ["/auth/v1/apikeys", "/auth/v1/users"]) {
      await refused(files, 400, "invalid_input", () => files.call("GET", `${list}?cursor=${page}`), ["cursor"]);
    }
  });

  test("A cursor of the operator's list of a team is refused by the list of all.", async () => {
    await files.call("POST", "/auth/v1/apikeys", { json: { name: "second" } });
    const list = `/auth/v1/apikeys?limit=1&teamId=${files.teamId}`;
    const { headers } = await call("GET", list, { token: OPERATOR });
    const link = new URL(/<([^>]+)>/.exec(headers.get("Link") ?? "")?.[1] ?? "x:");
    expect((await call("GET", link.pathname + link.search, { token: OPERATOR })).status).toBe(200);
    link.searchParams.delete("teamId");
    expect((await call("GET", link.pathname + link.search, { token: OPERATOR })).status).toBe(400);
  });

  test("A cursor that is changed, cut or made up shows no other team's rows, and breaks nothing.", async () => {
    const [id = "", signature = ""] = page.split(".");
    const flipped = (text: string, i: number) => text.slice(0, i) + (text[i] === "0" ? "1" : "0") + text.slice(i + 1);
    const forged = [
      ...Array.from(id, (_, i) => `${flipped(id, i)}.${signature}`),
      ...Array.from(signature.slice(0, -1), (_, i) => `${id}.${flipped(signature, i)}`),
      id,
      `${id}.`,
      `.${signature}`,
      ".",
      "",
      signature,
      `g.${signature}`,
      `${id.toUpperCase()}.${signature}`,
      `\0.${signature}`,
      `' or 1=1 --.${signature}`,
    ];
    for (const cursor of forged.filter((one) => one !== page)) {
      const { status } = await files.call("GET", `/docs/v1/uploads?cursor=${encodeURIComponent(cursor)}`);
      expect(status, cursor).toBe(400);
    }
    expect((await files.call("GET", `/docs/v1/uploads?cursor=${page}`)).status).toBe(200);
  });
});

describe("A request that says it is another", () => {
  test.each(["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])(
    "The header %s overrides no method.",
    async (name) => {
      const home = await newTeam();
      const headers = { [name]: "DELETE" };
      expect((await home.call("GET", `/auth/v1/apikeys/${home.keyId}`, { headers })).body.data.id).toBe(home.keyId);
      await refused(home, 405, "method_not_allowed", () =>
        home.call("POST", `/auth/v1/apikeys/${home.keyId}`, { headers }),
      );
    },
  );

  test("A _method in query or body overrides no method.", async () => {
    const home = await newTeam();
    const path = `/auth/v1/apikeys/${home.keyId}?_method=DELETE`;
    expect((await home.call("GET", path)).status).toBe(200);
    await refused(home, 405, "method_not_allowed", () => home.call("POST", path));
    const json = { name: "a", _method: "DELETE" };
    await refused(home, 400, "invalid_input", () => home.call("POST", "/auth/v1/apikeys", { json }), ["_method"]);
  });

  test.each(["PUT", "PROPFIND", "LOCK", "PURGE"])("The method %s does nothing.", async (method) => {
    const home = await newTeam();
    const { status } = await home.call(method, `/auth/v1/apikeys/${home.keyId}`);
    expect(status).toBe(405);
    expect((await home.call("GET", `/auth/v1/apikeys/${home.keyId}`)).status).toBe(200);
  });

  test("Headers of proxies change neither the path nor the address of the next page.", async () => {
    const home = await newTeam();
    for (const name of ["a.txt", "b.txt"]) await upload(home, name, name);
    const headers = Object.fromEntries(
      ["X-Forwarded-Host", "X-Host", "X-Original-Host", "Forwarded", "X-Forwarded-Proto", "X-Forwarded-Prefix"].map(
        (name) => [name, name === "Forwarded" ? "host=evil.example" : "evil.example"],
      ),
    );
    const paths = { "X-Original-URL": "/auth/v1/apikeys", "X-Rewrite-URL": "/auth/v1/apikeys" };
    const answer = await home.call("GET", "/docs/v1/uploads?limit=1", { headers: { ...headers, ...paths } });
    expect(answer.body.data[0].originalName).toBe("b.txt");
    expect(answer.headers.get("Link")).toMatch(/^<https:\/\/stowage\.test\/docs\/v1\/uploads\?limit=1&cursor=/);
    expect(JSON.stringify([...answer.headers])).not.toContain("evil.example");
  });

  test("A query can't break out of the Link header.", async () => {
    const home = await newTeam();
    for (const name of ["a.txt", "b.txt"]) await upload(home, name, name);
    const query = `limit=1&x=${encodeURIComponent('>; rel="next", <https://evil.example/>\r\nX-Evil: 1')}`;
    const { headers } = await home.call("GET", `/docs/v1/uploads?${query}`);
    expect(headers.get("Link")).toMatch(/^<[^<>\s"]+>; rel="next"$/);
    expect(headers.get("X-Evil")).toBeNull();
  });

  test("A client can't choose its request id.", async () => {
    const { headers, body } = await call("GET", "/docs/v1/usage", { headers: { "X-Request-Id": "evil" } });
    expect(headers.get("X-Request-Id")).toMatch(/^[0-9a-f-]{36}$/);
    expect(body.requestId).not.toBe("evil");
  });
});

describe("Path tricks in an id", () => {
  test.each([
    "%2e%2e%2fapikeys",
    "..%2f..%2fdocs%2fv1%2fusage",
    "%252e%252e%252f",
    "..%5c..%5c",
    "%2e%2e%5c",
    "..;%2f",
    "%c0%ae%c0%ae%2f",
    "%uff0e%uff0e",
    "a%00.json",
    "%00",
    "%0d%0aX-Evil:%201",
    "null",
    "undefined",
    "*",
    "%25",
    "[object%20Object]",
    "{id}",
    ":id",
    "%F0%9F%92%A9",
  ])("The id %s is not found.", async (id) => {
    for (const base of ["/auth/v1/apikeys/", "/auth/v1/users/", "/docs/v1/uploads/"]) {
      for (const method of ["GET", "DELETE"]) {
        const { status, headers } = await team.call(method, base + id);
        expect(status, base).toBe(404);
        expect(headers.get("X-Evil")).toBeNull();
      }
    }
  });

  test("Dots and slashes that the URL itself resolves lead to no other record.", async () => {
    for (const path of [
      `/docs/v1/uploads/../../../auth/v1/apikeys/${other.keyId}`,
      `/docs/v1/uploads/%2e%2e/%2e%2e/%2e%2e/auth/v1/apikeys/${other.keyId}`,
      `//auth/v1/apikeys/${other.keyId}`,
      `/auth/v1/apikeys/./${other.keyId}`,
      `/auth/v1/apikeys/${team.keyId}/../${other.keyId}`,
      `/auth/v1/apikeys\\${other.keyId}`,
      `/auth/v1/apikeys/${team.keyId}%2f..%2f${other.keyId}`,
      `/auth/v1/apikeys/${team.keyId},${other.keyId}`,
      `/auth/v1/apikeys/${other.keyId}?id=${team.keyId}&teamId=${team.teamId}`,
    ]) {
      const { status, text } = await team.call("GET", new URL(`https://stowage.test${path}`).href);
      expect([400, 404], path).toContain(status);
      expect(text).not.toContain(other.token);
    }
  });
});

describe("The page of another site", () => {
  test("A page of another site may call with a token of its own, and never with the visitor's credentials.", async () => {
    const origin = { Origin: "https://evil.example" };
    const { headers } = await team.call("GET", "/docs/v1/usage", { headers: { ...origin, Cookie: "a=b" } });
    expect(headers.get("Access-Control-Allow-Origin")).toBe("*");
    expect(headers.get("Access-Control-Allow-Credentials")).toBeNull();
    expect(headers.get("Set-Cookie")).toBeNull();
    const preflight = await call("OPTIONS", "/auth/v1/apikeys", {
      headers: { ...origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "X-Evil" },
    });
    expect(preflight.headers.get("Access-Control-Allow-Credentials")).toBeNull();
    expect(preflight.headers.get("Access-Control-Allow-Headers")).not.toContain("X-Evil");
  });

  test("A form of another site is refused, since nothing is served without the Authorization header.", async () => {
    expect((await call("POST", "/docs/v1/uploads", { body: form("a.txt", "a") })).status).toBe(401);
  });
});
