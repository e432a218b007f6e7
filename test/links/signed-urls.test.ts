import { env } from "cloudflare:workers";
import { createHmac } from "node:crypto";
import { beforeEach, describe, expect } from "vitest";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { createSigner } from "../../src/platform/signer.ts";
import { realSystem } from "../../src/platform/system.ts";
import { sha256 } from "../support/bytes.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  type Deps,
  fieldsOf,
  metadataOf,
  newTeam,
  OPERATOR,
  read,
  rejected,
  startWorker,
  type Team,
  upload,
  withoutJobs,
} from "../support/harness.ts";

/* The signed URL of a file, and attempts to abuse it. The e2e suite tests the same against a server. */

describe("A signed URL", () => {
  const credentials = { accessKeyId: "id", secretAccessKey: "local-secret" };
  const { sign } = createSigner({ endpoint: "https://s3.example", bucket: "files", credentials });
  const signed = async (key: string) => (await sign(key, 60)) ?? "";
  const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest();

  /** AWS Signature Version 4 for a query, implemented from Amazon's description and not from our code. */
  function isGenuine(signedUrl: string, { method = "GET", host = new URL(signedUrl).host } = {}): boolean {
    const url = new URL(signedUrl);
    const signature = url.searchParams.get("X-Amz-Signature");
    const [id, day = "", region = "", service = "", end = ""] = (url.searchParams.get("X-Amz-Credential") ?? "").split(
      "/",
    );
    const query = [...url.searchParams]
      .filter(([name]) => name !== "X-Amz-Signature")
      .map((pair) => pair.map(encodeURIComponent).join("="))
      .sort()
      .join("&");
    const signedHeaders = url.searchParams.get("X-Amz-SignedHeaders") ?? "";
    const request = [method, url.pathname, query, `host:${host}\n`, signedHeaders, "UNSIGNED-PAYLOAD"].join("\n");
    const scope = [day, region, service, end].join("/");
    const date = url.searchParams.get("X-Amz-Date") ?? "";
    const text = [url.searchParams.get("X-Amz-Algorithm"), date, scope, sha256(request)].join("\n");
    const key = [day, region, service, end].reduce<string | Buffer>(hmac, `AWS4${credentials.secretAccessKey}`);
    return id === credentials.accessKeyId && date.startsWith(day) && hmac(key, text).toString("hex") === signature;
  }

  const changed = (signedUrl: string, change: (url: URL) => void) => {
    const url = new URL(signedUrl);
    change(url);
    return url.href;
  };

  test("has a valid signature over one key, one method and an expiry", async () => {
    const signedUrl = await signed("team/id-Früh (1)'!*+ %41.mp3");
    expect(isGenuine(signedUrl)).toBe(true);
    const { searchParams } = new URL(signedUrl);
    expect([...searchParams.keys()].sort()).toEqual(
      "Algorithm Credential Date Expires Signature SignedHeaders".split(" ").map((name) => `X-Amz-${name}`),
    );
    expect(searchParams.get("X-Amz-Expires")).toBe("60");
    expect(searchParams.get("X-Amz-SignedHeaders")).toBe("host");
    expect(signedUrl).not.toContain(credentials.secretAccessKey);
  });

  test.each(["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"])(
    "is invalid with another X-Amz-%s, or without it",
    async (name) => {
      const parameter = `X-Amz-${name}`;
      const signedUrl = await signed("team/id-a.mp3");
      const value = new URL(signedUrl).searchParams.get(parameter) ?? "";
      const altered = value.replace(/[0-9a-z]/i, (c) => (c === "1" ? "2" : "1"));
      for (const other of [`${value}0`, value.slice(0, -1), altered]) {
        expect(isGenuine(changed(signedUrl, (url) => url.searchParams.set(parameter, other))), other).toBe(false);
      }
      expect(isGenuine(changed(signedUrl, (url) => url.searchParams.delete(parameter)))).toBe(false);
    },
  );

  test.each<[string, "pathname" | "search" | "host", string, string]>([
    ["another file", "pathname", "id-a", "id-b"],
    ["another team", "pathname", "team", "other"],
    ["another bucket", "pathname", "files", "other"],
    ["the bucket itself", "pathname", "team/id-a.mp3", ""],
    ["a further parameter", "search", "?", "?response-content-type=text/html&"],
    ["a listing", "search", "?", "?list-type=2&"],
    ["another host", "host", "s3", "evil"],
  ])("does not open %s", async (_, part, from, to) => {
    const change = (url: URL) => {
      expect(url[part]).toContain(from);
      url[part] = url[part].replace(from, to);
    };
    expect(isGenuine(changed(await signed("team/id-a.mp3"), change))).toBe(false);
  });

  test.each(["PUT", "POST", "DELETE", "HEAD"])("is not valid for %s", async (method) => {
    expect(isGenuine(await signed("team/id-a.mp3"), { method })).toBe(false);
  });
});

describe("Getting a signed URL", () => {
  const sign = (team: Team, id: string, query = "") => team.call("GET", `/docs/v1/uploads/${id}${query}`);

  test("returns a URL on the storage host for the file's path, valid for an hour, before the file is processed", async () => {
    const team = await newTeam();
    const id = await upload(team, "my song.mp3", "hello");
    const { body } = await sign(team, id);
    expect(fieldsOf(body)).toEqual(["message", "signedUrl", "status"]);
    expect([body.status, typeof body.message]).toEqual([true, "string"]);
    const url = new URL(body.signedUrl);
    expect(url.origin + url.pathname).toBe(new URL((await metadataOf(team, id)).path).href);
    expect(url.host).toBe(new URL(env.S3_ENDPOINT).host);
    expect(url.searchParams.get("X-Amz-Expires")).toBe("3600");
    expect(url.searchParams.get("X-Amz-Signature")).toMatch(/^[0-9a-f]{64}$/);
  });

  test.each([1, 604_800])("accepts expiresIn=%d", async (seconds) => {
    const team = await newTeam();
    const { body } = await sign(team, await upload(team, "a.txt", "hello"), `?expiresIn=${seconds}`);
    expect(new URL(body.signedUrl).searchParams.get("X-Amz-Expires")).toBe(`${seconds}`);
  });

  test("rejects an expiresIn that is not a number of seconds up to a week", async ({ team }) => {
    const id = await upload(team, "a.txt", "hello");
    const malformed = ["-1", "1.5", "1e3", "abc", "", "%201", "٣", "99999999999999999999", "60&expiresIn=9"];
    for (const value of ["0", "604801", "999999999999", ...malformed]) {
      await rejected(team, 400, "invalid_input", () => sign(team, id, `?expiresIn=${value}`), ["expiresIn"]);
    }
  });
});

describe("A signed URL without S3 credentials", () => {
  const system = { ...realSystem, now: () => Date.now() + aheadMilliseconds };
  let aheadMilliseconds = 0;
  const worker = startWorker((deps) => ({
    ...withoutJobs(deps),
    system,
    signer: createSigner({ endpoint: null, bucket: "files", credentials: null }),
  }));
  let team: Team;
  let id: string;
  let url: URL;
  beforeEach(async () => {
    aheadMilliseconds = 0;
    team = await newTeam(worker);
    id = await upload(team, "my song ü.txt", "hello");
    url = new URL((await team.call("GET", `/docs/v1/uploads/${id}`)).body.signedUrl);
  });
  const open = (path: string, headers = {}) => worker.call("GET", path, { headers });

  test("is a link to the file, which needs no row and no token", async () => {
    const { status, text, headers } = await open(url.pathname);
    expect([status, text]).toEqual([200, "hello"]);
    expect(headers.get("Content-Disposition")).toMatch(/^attachment; filename="my song _\.txt"/);
    expect((await open(url.pathname, { Range: "bytes=1-2" })).text).toBe("el");
    expect(await read(team, `/docs/v1/uploads/${id}/links`)).toEqual([]);
    const path = `s3://files/${team.teamId}/${id}-my%20song%20%C3%BC.txt`;
    expect((await metadataOf(team, id)).path).toBe(path);
  });

  test("expires after an hour, or after expiresIn", async () => {
    const { signedUrl } = (await team.call("GET", `/docs/v1/uploads/${id}?expiresIn=60`)).body;
    aheadMilliseconds = 58_000;
    expect((await open(new URL(signedUrl).pathname)).status).toBe(200);
    aheadMilliseconds = 60_000;
    expect((await open(new URL(signedUrl).pathname)).status).toBe(404);
    expect((await open(url.pathname)).status).toBe(200);
    aheadMilliseconds = 3_600_000;
    expect((await open(url.pathname)).status).toBe(404);
  });

  test("is not valid for another file, team or expiry, or with another signature, and then costs no query", async () => {
    const [, , , , token = "", name] = url.pathname.split("/");
    const [teamId, fileId, expiry, signature = ""] = token.split(".");
    const other = "0".repeat(24);
    const forged = startWorker((deps) => ({ ...deps, db: {} as Deps["db"] }));
    for (const parts of [
      [teamId, other, expiry, signature],
      [other, fileId, expiry, signature],
      [teamId, fileId, Number(expiry) + 1, signature],
      [teamId, fileId, expiry, signature.replace(/^./, (first) => (first === "a" ? "b" : "a"))],
      [teamId, fileId, expiry],
    ]) {
      const reply = await forged.call("GET", `/docs/v1/links/${parts.join(".")}/${name}`);
      expect([reply.status, reply.code]).toEqual([404, "not_found"]);
    }
  });

  test("is not found while its team is suspended, nor once its team is deleted", async () => {
    const asOperator = (method: string, json?: object) =>
      worker.call(method, `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, ...(json && { json }) });
    await asOperator("PATCH", { status: "suspended" });
    expect((await open(url.pathname)).status).toBe(404);
    await asOperator("PATCH", { status: "active" });
    expect((await open(url.pathname)).status).toBe(200);
    await asOperator("DELETE");
    expect((await open(url.pathname)).status).toBe(404);
  });

  test("ends when its file is deleted", async () => {
    expect((await team.call("DELETE", `/docs/v1/uploads/${id}`)).status).toBe(200);
    expect((await open(url.pathname)).status).toBe(404);
  });

  test("stays valid while a new master key is introduced", async () => {
    const [oldKey, newKey] = [env.MASTER_KEY, btoa("b".repeat(32))];
    const openWith = async (masterKey: string) => {
      const secrets = loadSecrets(masterKey, realSystem);
      return (await startWorker((deps) => ({ ...deps, secrets })).call("GET", url.pathname)).status;
    };
    expect(await openWith(`${newKey},${oldKey}`)).toBe(200);
    expect(await openWith(newKey)).toBe(404);
  });

  test("can be played by the console", async () => {
    const sourceWith = async (linkHost: string | null) => {
      const pages = { fetch: async () => new Response("page") } as unknown as Fetcher;
      const settings = (deps: Deps) => ({ ...deps.settings, storeOrigin: null, linkHost });
      const { send } = startWorker((deps) => ({ ...deps, pages, settings: settings(deps) }));
      const { headers } = await send(new Request("https://stowage.test/console"));
      return /media-src ([^;]+)/.exec(headers.get("Content-Security-Policy") ?? "")?.[1];
    };
    expect(await sourceWith(null)).toBe("'self'");
    expect(await sourceWith("links.stowage.test")).toBe("https://links.stowage.test");
  });

  test("is on LINK_HOST if that is set", async () => {
    const withHost = startWorker((deps) => ({
      ...deps,
      signer: createSigner({ endpoint: null, bucket: "files", credentials: null }),
      settings: { ...deps.settings, linkHost: "links.stowage.test" },
    }));
    const { body } = await withHost.call("GET", `/docs/v1/uploads/${id}`, { token: team.token });
    expect(new URL(body.signedUrl).host).toBe("links.stowage.test");
    expect((await withHost.call("GET", body.signedUrl)).text).toBe("hello");
  });
});
