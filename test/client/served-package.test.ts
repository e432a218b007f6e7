import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { url } from "../support/team.ts";

/* The package of the client that the service brings. */

const get = (path: string, init: RequestInit = {}) => fetch(new URL(path, url), { redirect: "manual", ...init });
const textOf = async (path: string) => (await get(path, { headers: { Accept: "text/html" } })).text();
const address = (await get("/client.tgz")).headers.get("Location") ?? "";

describe("GET /client.tgz", () => {
  test("redirects to the package of the service's version, whose name has its hash, and which is cached permanently", async () => {
    const response = await get(address);
    const bytes = Buffer.from(await response.arrayBuffer());
    const hash = createHash("sha256").update(bytes).digest("hex").slice(0, 12);
    expect(address).toMatch(new RegExp(`^/client-\\d+\\.\\d+\\.\\d+-${hash}\\.tgz$`));
    expect(response.headers.get("Content-Type")).toBe("application/gzip");
    expect(response.headers.get("Cache-Control")).toBe("public, max-age=31536000, immutable");
  });

  test.each(["/guide.md", "/client.md", "/", "/reference", "/llms.txt"])("%s names that address", async (path) => {
    expect(await textOf(path)).toContain(address);
  });

  test("the guides show the URL of the service in their examples", async () => {
    for (const path of ["/guide.md", "/client.md"]) {
      const text = await textOf(path);
      expect(text).toContain(`${new URL(url).origin}/`);
      expect(text).not.toContain("stowage.example.workers.dev");
    }
  });
});
