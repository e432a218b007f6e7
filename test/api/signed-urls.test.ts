import { env } from "cloudflare:workers";
import { createHash, createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createSigner } from "../../src/platform/signer.ts";
import { fieldsOf, newTeam, rejected, type Team, upload } from "../support/harness.ts";

/* The signed URL of a file, and attempts to abuse it. The e2e suite tests the same against a server. */

describe("A signed URL", () => {
  const settings = {
    endpoint: "https://s3.example",
    bucket: "files",
    accessKeyId: "id",
    secretAccessKey: "local-secret",
  };
  const signer = createSigner(settings);
  const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest();
  const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

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
    const key = [day, region, service, end].reduce<string | Buffer>(hmac, `AWS4${settings.secretAccessKey}`);
    return id === settings.accessKeyId && date.startsWith(day) && hmac(key, text).toString("hex") === signature;
  }

  const changed = (signedUrl: string, change: (url: URL) => void) => {
    const url = new URL(signedUrl);
    change(url);
    return url.href;
  };

  test("has a valid signature over one key, one method and an expiry", async () => {
    const signedUrl = await signer.sign("team/id-Früh (1)'!*+ %41.mp3", 60);
    expect(isGenuine(signedUrl)).toBe(true);
    const { searchParams } = new URL(signedUrl);
    expect([...searchParams.keys()].sort()).toEqual(
      "Algorithm Credential Date Expires Signature SignedHeaders".split(" ").map((name) => `X-Amz-${name}`),
    );
    expect(searchParams.get("X-Amz-Expires")).toBe("60");
    expect(searchParams.get("X-Amz-SignedHeaders")).toBe("host");
    expect(signedUrl).not.toContain(settings.secretAccessKey);
  });

  test.each(["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"])(
    "is invalid with another X-Amz-%s, or without it",
    async (name) => {
      const parameter = `X-Amz-${name}`;
      const signedUrl = await signer.sign("team/id-a.mp3", 60);
      const value = new URL(signedUrl).searchParams.get(parameter) ?? "";
      for (const other of [
        `${value}0`,
        value.slice(0, -1),
        value.replace(/[0-9a-z]/i, (c) => (c === "1" ? "2" : "1")),
      ]) {
        expect(isGenuine(changed(signedUrl, (url) => url.searchParams.set(parameter, other))), other).toBe(false);
      }
      expect(isGenuine(changed(signedUrl, (url) => url.searchParams.delete(parameter)))).toBe(false);
    },
  );

  test.each<[string, (url: URL) => void]>([
    [
      "another file",
      (url) => {
        url.pathname = url.pathname.replace("id-a", "id-b");
      },
    ],
    [
      "another team",
      (url) => {
        url.pathname = url.pathname.replace("team", "other");
      },
    ],
    [
      "another bucket",
      (url) => {
        url.pathname = url.pathname.replace("files", "other");
      },
    ],
    [
      "the bucket itself",
      (url) => {
        url.pathname = "/files/";
      },
    ],
    [
      "a further parameter",
      (url) => {
        url.searchParams.set("response-content-type", "text/html");
      },
    ],
    [
      "a listing",
      (url) => {
        url.searchParams.set("list-type", "2");
      },
    ],
    [
      "another host",
      (url) => {
        url.host = "evil.example";
      },
    ],
  ])("does not open %s", async (_, change) => {
    expect(isGenuine(changed(await signer.sign("team/id-a.mp3", 60), change))).toBe(false);
  });

  test.each(["PUT", "POST", "DELETE", "HEAD"])("is not valid for %s", async (method) => {
    expect(isGenuine(await signer.sign("team/id-a.mp3", 60), { method })).toBe(false);
  });
});

describe("Getting a signed URL", () => {
  const sign = (team: Team, id: string, query = "") => team.call("GET", `/docs/v1/uploads/${id}${query}`);
  const metadata = async (team: Team, id: string) => (await sign(team, id, "/metadata")).body.data;

  test("returns a URL on the storage host for the file's path, valid for an hour, before the file is processed", async () => {
    const team = await newTeam();
    const id = await upload(team, "my song.mp3", "hello");
    const { body } = await sign(team, id);
    expect(fieldsOf(body)).toEqual(["message", "signedUrl", "status"]);
    expect([body.status, typeof body.message]).toEqual([true, "string"]);
    const url = new URL(body.signedUrl);
    expect(url.origin + url.pathname).toBe(new URL((await metadata(team, id)).path).href);
    expect(url.host).toBe(new URL(env.S3_ENDPOINT).host);
    expect(url.searchParams.get("X-Amz-Expires")).toBe("3600");
    expect(url.searchParams.get("X-Amz-Signature")).toMatch(/^[0-9a-f]{64}$/);
  });

  test.each([1, 604_800])("accepts expiresIn=%d", async (seconds) => {
    const team = await newTeam();
    const { body } = await sign(team, await upload(team, "a.txt", "hello"), `?expiresIn=${seconds}`);
    expect(new URL(body.signedUrl).searchParams.get("X-Amz-Expires")).toBe(`${seconds}`);
  });

  test.each([
    "0",
    "604801",
    "-1",
    "1.5",
    "1e3",
    "abc",
    "",
    "%201",
    "٣",
    "1&expiresIn=2",
    "99999999999999999999",
    "999999999999",
    "60&expiresIn=9",
  ])("rejects expiresIn=%s", async (value) => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "hello");
    await rejected(team, 400, "invalid_input", () => sign(team, id, `?expiresIn=${value}`), ["expiresIn"]);
  });
});
