import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { beforeAll, describe, expect } from "vitest";
import { sample } from "../audio/samples.ts";
import { DB } from "../support/databases.ts";
import { beforeWrite } from "../support/deps.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  atOnce,
  call,
  compose,
  dataOf,
  newKey,
  newMember,
  newSession,
  newTeam,
  processed,
  queueing,
  randomAddress,
  read,
  rejected,
  startWorker,
  type Team,
  type TestWorker,
  tally,
  upload,
  withoutJobs,
  withoutRequestId,
} from "../support/harness.ts";
import { startLimited } from "../support/limits.ts";
import { DAY } from "../support/time.ts";
import { must, World } from "../support/world.ts";

const DIGITS = "0123456789abcdefghij";
const BYTES = new TextEncoder().encode(DIGITS);
const SIZE = BYTES.length;
/** More than a JavaScript integer. */
const HUGE = "9".repeat(20);
const FUTURE = "Thu, 22 Nov 2096 00:00:00 GMT";

/** The headers of a link's response that a page of another origin may read. */
const EXPOSED =
  "Accept-Ranges, Content-Disposition, Content-Length, Content-Range, ETag, Repr-Digest, Retry-After, X-Request-Id";

interface NewLink {
  _id: string;
  url: string;
  pageUrl: string;
}

const createLink = (team: Team, fileId: string, json: object = {}, token = team.token): Promise<NewLink> =>
  dataOf(team.call("POST", `/docs/v1/uploads/${fileId}/links`, { json, token }));
const linksOf = (team: Team, fileId: string) => read(team, `/docs/v1/uploads/${fileId}/links`);
const pathOf = ({ url }: NewLink) => new URL(url).pathname;
const open = (link: NewLink, headers: Record<string, string> = {}, method = "GET") =>
  call(method, pathOf(link), { headers });

describe("A link", () => {
  let team: Team;
  let fileId: string;
  let link: NewLink;
  beforeAll(async () => {
    team = await newTeam();
    fileId = await upload(team, "numbers ü.txt", BYTES);
    link = await createLink(team, fileId);
  });

  const all = [0, SIZE] as const;
  const full = { status: 200, range: all };
  const partial = (first: number, last: number) => ({ status: 206, range: [first, last + 1] as const });
  const unsatisfiable = { status: 416, range: null };
  const notModified = { status: 304, range: null };
  const mismatch = { status: 412, range: null };
  const tag = () => `"${link._id}"`;
  test.each([
    ["no range", {}, full],
    ["the first byte", { Range: "bytes=0-0" }, partial(0, 0)],
    ["the last byte", { Range: `bytes=${SIZE - 1}-${SIZE - 1}` }, partial(SIZE - 1, SIZE - 1)],
    ["an open end", { Range: "bytes=5-" }, partial(5, SIZE - 1)],
    ["an end beyond the file", { Range: `bytes=5-${HUGE}` }, partial(5, SIZE - 1)],
    ["a suffix", { Range: "bytes=-3" }, partial(SIZE - 3, SIZE - 1)],
    ["a suffix longer than the file", { Range: `bytes=-${HUGE}` }, partial(0, SIZE - 1)],
    ["an empty suffix", { Range: "bytes=-0" }, unsatisfiable],
    ["a start at the end", { Range: `bytes=${SIZE}-` }, unsatisfiable],
    ["a start beyond the end", { Range: `bytes=${HUGE}-` }, unsatisfiable],
    ["several ranges", { Range: "bytes=0-1,3-4" }, full],
    ["a malformed range", { Range: "bytes=5-2" }, full],
    ["a range without numbers", { Range: "bytes=-" }, full],
    ["another unit", { Range: "seconds=0-1" }, full],
    ["a unit in upper case", { Range: "BYTES=0-0" }, partial(0, 0)],
    ["If-Range with the ETag", { Range: "bytes=0-0", "If-Range": "TAG" }, partial(0, 0)],
    ["If-Range with the ETag beyond the end", { Range: `bytes=${SIZE}-`, "If-Range": "TAG" }, unsatisfiable],
    ["If-Range with another ETag", { Range: "bytes=0-0", "If-Range": '"x"' }, full],
    ["If-Range with another ETag beyond the end", { Range: `bytes=${SIZE}-`, "If-Range": '"x"' }, full],
    ["If-Range with a weak ETag", { Range: "bytes=0-0", "If-Range": "W/TAG" }, full],
    ["If-Range with a date", { Range: "bytes=0-0", "If-Range": FUTURE }, full],
    ["If-Range without Range", { "If-Range": "TAG" }, full],
    ["If-None-Match with another ETag", { "If-None-Match": '"x"' }, full],
    ["If-None-Match with a list that has the ETag", { "If-None-Match": '"x", W/TAG' }, notModified],
    ["If-None-Match with *", { "If-None-Match": "*", Range: "bytes=0-0" }, notModified],
    ["If-None-Match before a range beyond the end", { "If-None-Match": "TAG", Range: `bytes=${SIZE}-` }, notModified],
    ["If-Match with the ETag", { "If-Match": "TAG", Range: "bytes=0-0" }, partial(0, 0)],
    ["If-Match with *", { "If-Match": "*" }, full],
    ["If-Match with another ETag", { "If-Match": '"x"' }, mismatch],
    ["If-Match with a list that has a weak ETag", { "If-Match": '"x", W/TAG' }, mismatch],
    ["If-Match before If-None-Match", { "If-Match": '"x"', "If-None-Match": "TAG" }, mismatch],
    // Without a Last-Modified date, both conditions must be ignored.
    ["If-Modified-Since", { "If-Modified-Since": FUTURE }, full],
    ["If-Unmodified-Since", { "If-Unmodified-Since": "Sun, 22 Nov 2020 00:00:00 GMT" }, full],
  ])("answers a request with %s as RFC 9110 describes", async (_, headers, { status, range }) => {
    const sent = Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, value.replace("TAG", tag())]),
    );
    const reply = await open(link, sent);
    expect(reply.status, reply.text).toBe(status);
    expect(reply.headers.get("ETag")).toBe(tag());
    const isBytes = range !== null;
    if (isBytes) {
      expect(reply.text).toBe(DIGITS.slice(...range));
      expect(reply.headers.get("Content-Length")).toBe(String(range[1] - range[0]));
    }
    expect(reply.headers.get("Cache-Control")).toBe(
      `${isBytes || status === 304 ? "private, no-cache" : "no-store"}, no-transform`,
    );
    const contentRange = status === 206 && isBytes ? `bytes ${range[0]}-${range[1] - 1}/${SIZE}` : null;
    expect(reply.headers.get("Content-Range")).toBe(status === 416 ? `bytes */${SIZE}` : contentRange);
    const head = await open(link, sent, "HEAD");
    // A range applies to GET only.
    expect(head.status).toBe(status === 206 || status === 416 ? 200 : status);
    expect(head.text).toBe("");
    if (head.status === 200) expect(head.headers.get("Content-Length")).toBe(String(SIZE));
  });

  test("has the headers of a sandboxed download", async () => {
    for (const method of ["GET", "HEAD"]) {
      const { headers } = await open(link, {}, method);
      expect(Object.fromEntries(headers)).toMatchObject({
        "accept-ranges": "bytes",
        "cache-control": "private, no-cache, no-transform",
        "content-disposition": `attachment; filename="numbers _.txt"; filename*=UTF-8''numbers%20%C3%BC.txt`,
        "content-length": String(SIZE),
        "content-security-policy": expect.stringMatching(/^sandbox; default-src 'none'; media-src 'self'$/),
        "content-type": "text/plain; charset=utf-8",
        "cross-origin-resource-policy": "cross-origin",
        "repr-digest": `sha-256=:${createHash("sha256").update(BYTES).digest("base64")}:`,
        "x-content-type-options": "nosniff",
        "access-control-allow-origin": "*",
        "access-control-expose-headers": EXPOSED,
      });
    }
  });

  test.each([
    ["For the press", "For the press.txt"],
    ["report.txt", "report.txt"],
    ["A/B, Vol. 2", "A-B, Vol. 2.txt"],
    ["../report.txt", "..-report.txt"],
    ["..", "...txt"],
  ])("named %s downloads as %s, with any name in its URL", async (name, downloaded) => {
    const named = await createLink(team, fileId, { name });
    const { pathname } = new URL(named.url);
    expect(decodeURIComponent(pathname.split("/").at(-1) ?? "")).toBe(downloaded);
    const { headers } = await call("GET", pathname.replace(/[^/]+$/, "other"));
    expect(headers.get("Content-Disposition")).toContain(`filename="${downloaded}"`);
  });

  test("does not show that another link opens the same file", async () => {
    const [one, other] = [await createLink(team, fileId), await createLink(team, fileId)];
    await team.call("PUT", `/docs/v1/uploads/${fileId}/transcript`, {
      body: "WEBVTT\n\n00:00.000 --> 00:01.000\nHm.\n",
      headers: { "Content-Type": "text/vtt" },
    });
    const tagsOf = async (opened: NewLink) => {
      const { transcriptUrl } = await dataOf(call("GET", pathOf(opened).split("/").slice(0, -1).join("/")));
      const answers = [await open(opened), await call("GET", new URL(transcriptUrl).pathname)];
      return answers.map(({ headers }) => headers.get("ETag") ?? "");
    };
    const tags = [...(await tagsOf(one)), ...(await tagsOf(other))];
    expect(new Set(tags).size).toBe(4);
    for (const tag of tags) expect(tag).not.toContain(fileId);
  });

  test("is listed with its file, without its URL", async () => {
    const expiresAt = new Date(Date.now() + DAY).toISOString();
    const id = await upload(team, "listed.txt", "listed");
    const first = await createLink(team, id);
    const part = { startSeconds: 50, endSeconds: 83.5 };
    const second = await createLink(team, id, { disposition: "inline", expiresAt, name: " Für die Presse ", ...part });
    const base = { fileId: id, createdAt: expect.any(String), createdBy: { keyId: team.keyId, userId: null } };
    expect(await linksOf(team, id)).toEqual([
      {
        _id: first._id,
        name: null,
        startSeconds: null,
        endSeconds: null,
        disposition: "attachment",
        expiresAt: null,
        ...base,
      },
      { _id: second._id, name: "Für die Presse", ...part, disposition: "inline", expiresAt, ...base },
    ]);
  });
});

describe("Opening a link", () => {
  const opened = async (link: NewLink) => (await open(link)).status;

  test("fails the same way if it is unknown, revoked or expired, or if its file is deleted", async ({ team }) => {
    const [kept, deleted] = [await upload(team, "a.txt", "a"), await upload(team, "b.txt", "b")];
    const [revoked, expired] = [await createLink(team, kept), await createLink(team, kept)];
    const gone = await createLink(team, deleted);
    const wrongSecret = { ...revoked, url: revoked.url.replace(/\.[0-9a-f]{32}/, `.${"0".repeat(32)}`) };
    const malformed = { _id: "", url: "https://stowage.test/docs/v1/links/x/y", pageUrl: "" };
    expect(await opened(revoked)).toBe(200);
    expect((await team.call("DELETE", `/docs/v1/links/${revoked._id}`)).status).toBe(200);
    await DB.prepare("update links set expires_at = ? where id = ?").bind(Date.now(), expired._id).run();
    expect((await team.call("DELETE", `/docs/v1/uploads/${deleted}`)).status).toBe(200);
    const texts = new Set<string>();
    for (const link of [wrongSecret, revoked, expired, gone, malformed]) {
      const { status, text, headers } = await open(link);
      expect(status).toBe(404);
      expect(headers.get("Content-Security-Policy")).toContain("sandbox");
      texts.add(withoutRequestId(text));
    }
    expect(texts.size).toBe(1);
    expect((await DB.prepare("select 1 from links where id = ?").bind(gone._id).all()).results).toEqual([]);
  });

  test("is created with the URLs of its bytes, its page and its player, which have the same secret", async ({
    team,
  }) => {
    const id = await upload(team, "a.txt", "a");
    const { url, pageUrl, embedUrl } = await dataOf(team.call("POST", `/docs/v1/uploads/${id}/links`, { json: {} }));
    const [, secret] = /\/links\/([^/]+)\/a\.txt$/.exec(url) ?? [];
    expect([pageUrl, embedUrl].map((one) => new URL(one).pathname)).toEqual([`/share/${secret}`, `/embed/${secret}`]);
  });

  test("fails if the stored object is missing", async ({ team }) => {
    const id = await upload(team, "a.txt", "a");
    const link = await createLink(team, id);
    await env.BUCKET.delete(`${team.teamId}/${id}-a.txt`);
    expect([await opened(link), (await open(link, {}, "HEAD")).status]).toEqual([404, 404]);
  });

  test("counts failures against the client IP, and successes not", async ({ team }) => {
    const link = await createLink(team, await upload(team, "a.txt", "a"));
    const taken: string[] = [];
    const worker = startWorker((deps) => ({
      ...deps,
      limiter: { ...deps.limiter, isBlocked: () => false, countUnauthenticated: async (ip) => taken.push(ip) < 3 },
    }));
    const address = randomAddress();
    for (let i = 0; i < 5; i++) expect((await worker.call("GET", pathOf(link), { address })).status).toBe(200);
    expect(taken).toEqual([]);
    const wrong = pathOf(link).replace(/\.[0-9a-f]{32}/, `.${"0".repeat(32)}`);
    const statuses = [];
    for (let i = 0; i < 4; i++) statuses.push((await worker.call("GET", wrong, { address })).status);
    expect(statuses).toEqual([404, 404, 429, 429]);
  });

  test("fails from a blocked client IP even with the right URL, unless that was opened recently", async ({ team }) => {
    const id = await upload(team, "a.txt", "a");
    const [known, guessed] = [pathOf(await createLink(team, id)), pathOf(await createLink(team, id))];
    const wrong = guessed.replace(/\.[0-9a-f]{32}/, `.${"0".repeat(32)}`);
    const { call } = startLimited({ CLIENT_IP_LIMIT: 2 });
    const address = randomAddress();
    const open = async (path: string, from = address) => (await call("GET", path, { address: from })).status;
    expect(await open(known)).toBe(200);
    expect([await open(wrong), await open(wrong), await open(wrong)]).toEqual([404, 404, 429]);
    expect([await open(guessed), await open(known)]).toEqual([429, 200]);
    expect(await open(guessed, randomAddress())).toBe(200);
  });

  test("counts for the client IP, up to 6,000 a minute", async ({ team }) => {
    const link = await createLink(team, await upload(team, "a.txt", "a"));
    const counters: string[] = [];
    const worker = startWorker((deps) => ({
      ...deps,
      limiter: { ...deps.limiter, countOpening: async (clientIp) => counters.push(clientIp) < 2 },
    }));
    const address = randomAddress();
    const openHere = () => worker.call("GET", pathOf(link), { address });
    expect((await openHere()).status).toBe(200);
    const { status, headers } = await openHere();
    expect([status, headers.get("RateLimit-Policy")]).toEqual([429, '"light";q=6000;w=60']);
    expect(counters).toEqual([address, address]);
  });

  test("shows only audio of a harmless type inline", async ({ team }) => {
    for (const [name, content, disposition, type] of [
      ["page.html", "<script>alert(1)</script>", "attachment", "text/plain"],
      ["image.svg", "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "attachment", "text/plain"],
      ["tone.mp3", sample("tone-cbr.mp3").bytes, "inline", "audio/mpeg"],
    ] as const) {
      const link = await createLink(team, await upload(team, name, content), { disposition: "inline" });
      const { headers } = await open(link);
      const [shown, served] = ["Content-Disposition", "Content-Type"].map(
        (header) => headers.get(header)?.split(";")[0],
      );
      expect([shown, served], name).toEqual([disposition, type]);
    }
  });

  test("happens on LINK_HOST only, which serves nothing else", async () => {
    const worker = startWorker((deps) => ({ ...deps, settings: { ...deps.settings, linkHost: "links.stowage.test" } }));
    const team = await newTeam(worker);
    const link = await createLink(team, await upload(team, "a.txt", "a"));
    expect(new URL(link.url).host).toBe("links.stowage.test");
    expect((await worker.call("GET", link.url)).status).toBe(200);
    expect((await worker.call("GET", pathOf(link))).status).toBe(404);
    for (const path of ["/docs/v1/uploads", "/console/", "/openapi.json", "/reference", "/"]) {
      const reply = await worker.send(
        new Request(`https://links.stowage.test${path}`, { headers: { Accept: "text/html" } }),
      );
      expect([path, reply.status]).toEqual([path, 404]);
    }
  });
});

/** A Worker with the files of the pages. */
const startWithPages = (linkHost: string | null = null) =>
  startWorker((deps) => ({
    ...deps,
    pages: { fetch: async (file: URL) => new Response(file.pathname) } as unknown as Fetcher,
    settings: { ...deps.settings, linkHost },
  }));
const describedAt = ({ url }: NewLink) => url.split("/").slice(0, -1).join("/");
const withWrongSecret = (url: string) => url.replace(/\.[0-9a-f]{32}/, `.${"0".repeat(32)}`);

describe("The description of a link", () => {
  test("names the file, its tags, and who shares it until when, and has its waveform", async () => {
    const team = await newTeam(queueing);
    const bytes = sample("tone-vbr.mp3").bytes;
    const id = await upload(team, "tone ü.mp3", bytes);
    const expiresAt = "2100-01-01T00:00:00.000Z";
    const link = await createLink(team, id, { name: "song.mp3", endSeconds: 1.5, expiresAt });
    const description = async () => dataOf(call("GET", describedAt(link)));
    const { durationSeconds } = await processed(team, id);
    expect(durationSeconds).toBeGreaterThan(0);
    const tags = { title: "Übergröße·日本", artist: "Stowage" };
    const shared = { ...tags, teamName: "test", expiresAt };
    const plain = {
      name: "song.mp3",
      startSeconds: null,
      endSeconds: 1.5,
      size: bytes.length,
      mimeType: "audio/mpeg",
      durationSeconds,
      url: link.url,
      ...shared,
    };
    // The service may have measured it by now.
    const { waveform: _, ...described } = await description();
    expect(described).toEqual({ ...plain, transcriptUrl: null });
    const channels = [Array(16).fill(1), Array(16).fill(-1)];
    await team.call("PUT", `/docs/v1/uploads/${id}/waveform`, { json: { channels } });
    expect(await description()).toEqual({ ...plain, waveform: channels, transcriptUrl: null });
    const { headers } = await call("GET", describedAt(link));
    expect(headers.get("Cache-Control")).toBe("no-store, no-transform");
    expect((await call("GET", `${describedAt(link)}?x=1`)).code).toBe("invalid_input");
  });

  test("ends with the link, by the same 404 as its bytes", async ({ team }) => {
    const link = await createLink(team, await upload(team, "a.txt", "a"));
    expect((await call("GET", describedAt(link))).status).toBe(200);
    const unknown = await call("GET", withWrongSecret(link.url));
    await team.call("DELETE", `/docs/v1/links/${link._id}`);
    for (const url of [describedAt(link), withWrongSecret(describedAt(link)), describedAt(link).slice(0, -1)]) {
      const { status, text } = await call("GET", url);
      expect([status, withoutRequestId(text)]).toEqual([404, withoutRequestId(unknown.text)]);
    }
  });
});

describe("The page of a link", () => {
  const open = async (worker: TestWorker, url: string) => {
    const { status, headers, text } = await worker.call("GET", url);
    return { status, headers, text, policy: headers.get("Content-Security-Policy") ?? "" };
  };

  test("is not stored, indexed, or framed, except that any site may frame the player", async ({ team }) => {
    const worker = startWithPages();
    const { pageUrl } = await createLink(team, await upload(team, "a.txt", "a"));
    expect(new URL(pageUrl).pathname).toMatch(/^\/share\/[0-9a-f]{24}\.[0-9a-f]{32}$/);
    for (const [url, ancestors, frameOptions] of [
      [pageUrl, "'none'", "DENY"],
      [pageUrl.replace("/share/", "/embed/"), "*", null],
    ] as const) {
      for (const [address, status, file] of [
        [url, 200, "/share.html"],
        [withWrongSecret(url), 404, "/gone.html"],
      ] as const) {
        const page = await open(worker, address);
        expect([page.status, page.text]).toEqual([status, file]);
        expect(Object.fromEntries(page.headers)).toMatchObject({
          "cache-control": "no-store",
          "content-type": "text/html; charset=utf-8",
          "referrer-policy": "no-referrer",
          "x-content-type-options": "nosniff",
          "x-robots-tag": "noindex",
        });
        expect(page.headers.get("X-Frame-Options")).toBe(frameOptions);
        expect(page.policy.split("; ")).toEqual(
          expect.arrayContaining([
            ...["default-src 'none'", "script-src 'self'", "connect-src 'self'", "media-src 'self'"],
            ...[`frame-ancestors ${ancestors}`, "require-trusted-types-for 'script'", "trusted-types 'none'"],
          ]),
        );
      }
    }
  });

  test("names the file and the team for previews, as text", async ({ team }) => {
    const worker = startWorker((deps) => ({
      ...deps,
      pages: {
        fetch: async () => new Response("<head><title>Shared file</title></head>"),
      } as unknown as Fetcher,
    }));
    const { pageUrl } = await createLink(team, await upload(team, "a.txt", "a"), { name: `"><script>$'&.txt` });
    const { text } = await open(worker, pageUrl);
    expect(text).toContain("<title>&#34;&#62;&#60;script&#62;$'&#38;.txt</title>");
    expect(text).not.toContain("og:image");
    expect(text).toContain(`<meta property="og:title" content="&#34;&#62;&#60;script&#62;$'&#38;.txt">`);
    expect(text).toContain(`<meta property="og:description" content="Shared by test">`);
    expect((await open(worker, withWrongSecret(pageUrl))).text).toBe("<head><title>Shared file</title></head>");
  });

  test("has a picture of the waveform for previews, with the secret of the link, until the link is revoked", async ({
    team,
  }) => {
    const worker = startWorker((deps) => ({
      ...deps,
      pages: { fetch: async () => new Response("<head></head>") } as unknown as Fetcher,
    }));
    const id = await upload(team, "a.txt", "a");
    const { _id, pageUrl } = await createLink(team, id);
    expect((await worker.call("GET", `${pageUrl}/waveform.png`)).status).toBe(404);
    const channels = [Array.from({ length: 16 }, (_, i) => i / 16)];
    await team.call("PUT", `/docs/v1/uploads/${id}/waveform`, { json: { channels } });
    const { text } = await open(worker, pageUrl);
    const [, image = ""] = /property="og:image" content="([^"]*)"/.exec(text) ?? [];
    expect(image).toBe(`${pageUrl}/waveform.png`);
    const shown = await worker.send(new Request(image));
    expect(shown.headers.get("Content-Type")).toBe("image/png");
    expect(shown.headers.get("Cache-Control")).toBe("no-store");
    const picture = Buffer.from(await shown.arrayBuffer());
    expect(picture.subarray(0, 8).toString("latin1")).toBe("\x89PNG\r\n\x1a\n");
    expect([picture.readUInt32BE(16), picture.readUInt32BE(20)]).toEqual([1200, 630]);
    expect((await worker.call("GET", `${withWrongSecret(pageUrl)}/waveform.png`)).status).toBe(404);
    await team.call("DELETE", `/docs/v1/links/${_id}`);
    expect((await worker.call("GET", image)).status).toBe(404);
  });

  test("ends with the next request once the link is revoked", async ({ team }) => {
    const worker = startWithPages();
    const { _id, pageUrl } = await createLink(team, await upload(team, "a.txt", "a"));
    expect((await open(worker, pageUrl)).status).toBe(200);
    await team.call("DELETE", `/docs/v1/links/${_id}`);
    expect((await open(worker, pageUrl)).status).toBe(404);
  });

  test("counts failures against the client IP", async ({ team }) => {
    const { call } = startLimited({ CLIENT_IP_LIMIT: 2 }, (deps) => ({
      ...deps,
      pages: { fetch: async () => new Response() } as unknown as Fetcher,
    }));
    const { pageUrl } = await createLink(team, await upload(team, "a.txt", "a"));
    const address = randomAddress();
    const statusOf = async (url: string) => (await call("GET", url, { address })).status;
    const wrong = withWrongSecret(pageUrl);
    expect([await statusOf(pageUrl), await statusOf(wrong), await statusOf(wrong)]).toEqual([200, 404, 404]);
    expect([await statusOf(wrong), await statusOf(wrong), await statusOf(pageUrl)]).toEqual([429, 429, 200]);
  });

  test("is on LINK_HOST only, with its data, if that is set", async () => {
    const worker = startWithPages("links.stowage.test");
    const team = await newTeam(worker);
    const link = await createLink(team, await upload(team, "a.txt", "a"));
    for (const url of [link.pageUrl, link.pageUrl.replace("/share/", "/embed/"), describedAt(link)]) {
      expect(new URL(url).host).toBe("links.stowage.test");
      expect((await worker.call("GET", url)).status).toBe(200);
      const { pathname } = new URL(url);
      for (const encoded of [pathname, pathname.replace("s", "%73"), pathname.replace(".", "%2e")]) {
        expect([encoded, (await worker.call("GET", encoded)).status]).toEqual([encoded, 404]);
        expect((await worker.call("GET", `https://links.stowage.test${encoded}`)).status).toBe(200);
      }
    }
    const encoded = pathOf(link).replace("links", "link%73");
    expect((await worker.call("GET", encoded)).status).toBe(404);
    expect((await worker.call("GET", `https://links.stowage.test${encoded}`)).status).toBe(200);
  });
});

describe("Creating a link", () => {
  test("rejects invalid input and changes nothing", async ({ team }) => {
    const id = await upload(team, "a.txt", "a");
    for (const [field, value] of [
      ["expiresAt", new Date(Date.now() - 1000).toISOString()],
      ["expiresAt", "9999-12-31T23:59:59-23:59"],
      ["expiresAt", "0000-01-01T00:00:00+00:01"],
      ["disposition", "page"],
      ["name", ""],
      ["name", "\ud800"],
      ["name", "x".repeat(101)],
      ["startSeconds", -1],
      ["startSeconds", 10_000_001],
      ["startSeconds", "5"],
      ["endSeconds", 0],
      ["secret", "x"],
    ] as const) {
      const create = () => team.call("POST", `/docs/v1/uploads/${id}/links`, { json: { [field]: value } });
      await rejected(team, 400, "invalid_input", create, [field]);
    }
    const json = { startSeconds: 8, endSeconds: 8 };
    const create = () => team.call("POST", `/docs/v1/uploads/${id}/links`, { json });
    await rejected(team, 400, "invalid_input", create, ["endSeconds"]);
  });

  test("changes nothing if the key is revoked or narrowed after it was authorized", async ({ team }) => {
    const id = await upload(team, "a.txt", "a");
    const ends: [string, number, string][] = [
      ["delete from api_keys where id = ?", 401, "token_invalid"],
      ["update api_keys set scopes = 0 where id = ?", 403, "insufficient_scope"],
    ];
    for (const [end, ...refused] of ends) {
      const { key, id: keyId } = await newKey(team, { scopes: ["files:download"] });
      const racing = startWorker(beforeWrite(() => DB.prepare(end).bind(keyId).run()));
      const path = `/docs/v1/uploads/${id}/links`;
      const { status, code } = await racing.call("POST", path, { token: key, json: {} });
      expect([status, code]).toEqual(refused);
    }
    expect(await linksOf(team, id)).toEqual([]);
  });

  test("creates no link for a user who becomes a contributor after being authorized", async ({ team }) => {
    const id = await upload(team, "a.txt", "a");
    const member = await newMember(team, "member");
    const demote = () => team.call("PATCH", `/auth/v1/users/${member.id}`, { json: { role: "contributor" } });
    const racing = startWorker(compose(withoutJobs, beforeWrite(demote)));
    const create = () => racing.call("POST", `/docs/v1/uploads/${id}/links`, { token: member.token, json: {} });
    const { status, code, headers } = await create();
    expect([status, code, headers.has("Retry-After")]).toEqual([503, "unavailable", true]);
    expect(await linksOf(team, id)).toEqual([]);
    expect((await create()).code, "a contributor doesn't see the team's file").toBe("not_found");
  });

  test("stops at 100 links per file, also under concurrency", async ({ team }) => {
    const id = await upload(team, "a.txt", "a");
    const create = () => team.call("POST", `/docs/v1/uploads/${id}/links`, { json: {} });
    for (let i = 0; i < 95; i++) await create();
    expect(tally(await atOnce(10, create))).toEqual({ 200: 5, too_many_links: 5 });
    expect(await linksOf(team, id)).toHaveLength(100);
  });

  test("stops at 10,000 links per team, also under concurrency, until links are revoked or a file is deleted", async () => {
    const team = await newTeam();
    const [id, other] = [await upload(team, "a.txt", "a"), await upload(team, "b.txt", "b")];
    const { _id } = await createLink(team, id);
    const create = () => team.call("POST", `/docs/v1/uploads/${other}/links`, { json: {} });
    const count = (change: string) =>
      DB.prepare(`update teams set links = links ${change} where id = ? returning links`)
        .bind(team.teamId)
        .first("links");
    await count("+ 9997");
    const created = await atOnce(4, create);
    expect(tally(created)).toEqual({ 200: 2, too_many_links: 2 });
    expect(created.find(({ status }) => status === 409)?.body.message).toContain("a team 10,000.");
    await team.call("DELETE", `/docs/v1/links/${_id}`);
    expect(tally(await atOnce(2, create))).toEqual({ 200: 1, too_many_links: 1 });
    await team.call("DELETE", `/docs/v1/uploads/${other}`);
    expect(await count("- 9997")).toBe(0);
  });
});

describe("Revoking a link", () => {
  test("revoking a link of another user or key needs files:write", async ({ team }) => {
    const id = await upload(team, "a.txt", "a");
    const [viewer, member] = [await newMember(team, "viewer"), await newMember(team, "member")];
    const { key: plainKey } = await newKey(team, { scopes: ["files:download"] });
    const [ofKey, ofMember, ofViewer] = [
      await createLink(team, id),
      await createLink(team, id, {}, member.token),
      await createLink(team, id, {}, viewer.token),
    ];
    const revoke = ({ _id }: NewLink, token: string) => team.call("DELETE", `/docs/v1/links/${_id}`, { token });
    for (const [link, token] of [
      [ofKey, viewer.token],
      [ofMember, viewer.token],
      [ofKey, plainKey],
    ] as const) {
      const { headers } = await rejected(team, 403, "insufficient_scope", () => revoke(link, token));
      expect(headers.get("WWW-Authenticate")).toContain('scope="files:write"');
    }
    const another = await newSession(team, viewer.id);
    expect((await revoke(ofViewer, another)).status).toBe(200);
    expect((await revoke(ofViewer, another)).status).toBe(404);
    expect((await revoke(ofKey, member.token)).status).toBe(200);
    expect((await revoke(ofMember, team.token)).status).toBe(200);
  });
});

test("the recovery job deletes expired links", async () => {
  const world = new World();
  const team = await world.newTeam();
  const id = await world.store(team, "a.txt", "a");
  const expiresAt = new Date(world.system.now() + DAY).toISOString();
  const create = (json: object) => world.call("POST", `/docs/v1/uploads/${id}/links`, { token: team.token, json });
  await create({ expiresAt });
  await create({});
  world.aheadMilliseconds += DAY;
  const recovered = await must(world.recover());
  expect(recovered.linksRemoved).toBeGreaterThan(0);
  const { results } = await DB.prepare("select expires_at from links where file_id = ?").bind(id).all();
  expect(results).toEqual([{ expires_at: null }]);
});
