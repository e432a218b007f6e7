import { createHash, randomBytes, randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { RATE_LIMITS } from "../rate-limits.ts";
import { Refusal } from "./refusal.ts";
import { createClient } from "./service-client.ts";

/* The steps of the smoke test. */

export interface SmokeOptions {
  url: string;
  /** A secret key with all scopes. */
  key: string;
  /** The URL of a webhook endpoint. Without one, the step is left out. */
  webhook?: string | undefined;
  print(line: string): void;
  /** How long a file may be processed. */
  processingMilliseconds?: number;
}

/** The limit of the whole test, without cleanup. */
const LIMIT_MILLISECONDS = 3 * 60 * 1000;
const PROCESSING_MILLISECONDS = 60_000;
const POLL_MILLISECONDS = 500;
/** Signed URLs fail if clocks differ more: S3 allows 15 minutes. */
const CLOCK_SKEW_MILLISECONDS = 5 * 60 * 1000;
const MEBIBYTE = 1024 * 1024;
/** Above 8 MiB a form upload is stored in parts. Processing then compares R2's ETag with the MD5 of each part. */
const FORM_BYTES = 9 * MEBIBYTE;
/** More than one part of 5 MiB. The connection is cut after the first part. */
const RESUMABLE_BYTES = 6 * MEBIBYTE;
const CUT_BYTES = 5.5 * MEBIBYTE;
const SAMPLE_RATE = 8000;

/** A WAV file of random samples, so that no two files are equal. */
function randomWav(bytes: number): Buffer<ArrayBuffer> {
  // The chunk `fmt ` in words of 16 bits: PCM, one channel of 8 bits.
  const format = Buffer.from(Uint16Array.of(16, 0, 1, 1, SAMPLE_RATE, 0, SAMPLE_RATE, 0, 1, 8).buffer);
  const header = Buffer.concat([Buffer.from("RIFF____WAVEfmt "), format, Buffer.from("data____")]);
  header.writeUInt32LE(bytes - 8, 4);
  header.writeUInt32LE(bytes - header.length, 40);
  return Buffer.concat([header, randomBytes(bytes - header.length)]);
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Runs all steps with a new team in each database. @returns whether all succeeded */
export async function runSmokePerDatabase({
  operatorToken,
  ...options
}: Omit<SmokeOptions, "key"> & { operatorToken: string }): Promise<boolean> {
  const { print } = options;
  const newClient = () => createClient(options.url, operatorToken, { signal: AbortSignal.timeout(LIMIT_MILLISECONDS) });
  try {
    const { databases } = (await newClient().call("GET", "/health")).body;
    if (!databases) throw new Refusal("OPERATOR_TOKEN is not the operator token of this deployment.");
    for (const { number, status } of databases) {
      print(`Database ${number}${status === "full" ? " is full, and takes no new team to test it" : ""}`);
      if (status === "full") continue;
      const json = { name: `smoke-${randomUUID()}`, database: number };
      const { data, apiKey } = (await newClient().call("POST", "/auth/v1/teams", { json })).body;
      try {
        if (data.database !== number) throw new Refusal(`The team is in database ${data.database}.`);
        if (!(await runSmoke({ ...options, key: apiKey.key }))) return false;
      } finally {
        await newClient().call("DELETE", `/auth/v1/teams/${data._id}`);
      }
    }
    return true;
  } catch (error) {
    print(`FAIL  ${(error as Error).message}`);
    return false;
  }
}

/** Requests at once, more than the limit of a client IP in a minute. */
const BURST_REQUESTS = 400;

/**
 * Measures how many requests of a burst pass the rate limit of a client IP. Fails nothing: Cloudflare counts in each of its
 * locations, and is reported to let bursts through. Call it last, because the client IP is then blocked for up to a minute.
 */
export async function measureBurst({ url, print }: Pick<SmokeOptions, "url" | "print">): Promise<void> {
  const client = createClient(url, null, { signal: AbortSignal.timeout(LIMIT_MILLISECONDS) });
  const ask = async () => {
    const response = await client.send("GET", "/docs/v1/usage");
    await response.arrayBuffer();
    return response.status;
  };
  try {
    const statuses = await Promise.all(Array.from({ length: BURST_REQUESTS }, ask));
    const passed = statuses.filter((status) => status === 401).length;
    const rejected = statuses.filter((status) => status === 429).length;
    const advice = rejected > 0 ? "" : ". Add a WAF rule: src/OPERATIONS.md, Quotas and rate limits";
    const limit = `${RATE_LIMITS["client-ip"]} a minute are allowed`;
    print(
      `${rejected > 0 ? "ok  " : "note"}  rate limit: ${passed} of ${BURST_REQUESTS} requests at once passed, ${limit}${advice}`,
    );
  } catch (error) {
    print(`note  rate limit: not measured: ${(error as Error).message}`);
  }
}

/** Runs all steps. @returns whether all succeeded */
export async function runSmoke(options: SmokeOptions): Promise<boolean> {
  const { url, key, webhook, print, processingMilliseconds = PROCESSING_MILLISECONDS } = options;
  const signal = AbortSignal.timeout(LIMIT_MILLISECONDS);
  const name = `smoke-${randomUUID()}`;
  const cleanups: (() => Promise<unknown>)[] = [];

  const { send, call } = createClient(url, key, { signal });

  /** Fails unless the first bytes of the URL are those of the file, by a range request without a token. */
  async function expectRange(target: string, bytes: Buffer): Promise<void> {
    const { origin, host } = new URL(target);
    const visitor = createClient(origin, null, { signal });
    const response = await visitor.send("GET", target, { headers: { Range: "bytes=100-199" } });
    const received = Buffer.from(await response.arrayBuffer());
    if (response.status !== 206)
      throw new Refusal(`${host} responded ${response.status} to a range request: ${received.subarray(0, 300)}`);
    if (!received.equals(bytes.subarray(100, 200))) throw new Refusal(`${host} sent other bytes than were uploaded.`);
  }

  async function processed(id: string, bytes: Buffer): Promise<void> {
    const end = Date.now() + processingMilliseconds;
    for (;;) {
      const {
        status,
        failure,
        sha256: stored,
        audio,
      } = (await call("GET", `/docs/v1/uploads/${id}/metadata`)).body.data;
      if (status === "failed") throw new Refusal(`Processing failed: ${failure.code}: ${failure.message}`);
      if (status === "completed") {
        if (stored !== sha256(bytes)) throw new Refusal("The stored SHA-256 is not that of the file.");
        const seconds = (bytes.length - 44) / SAMPLE_RATE;
        if (Math.abs(audio?.durationSeconds - seconds) > 1) throw new Refusal("The duration of the audio is wrong.");
        return;
      }
      if (Date.now() > end) throw new Refusal(`The file is still ${status} after ${processingMilliseconds / 1000} s.`);
      await sleep(POLL_MILLISECONDS, undefined, { signal });
    }
  }

  /** Creates a webhook, and sends a message to it. @returns how its endpoint responded */
  async function sendTestEvent(endpoint: string): Promise<{ httpStatus: number | null; responseBody: string }> {
    const json = { url: endpoint, types: ["webhook.disabled"] };
    const { data } = (await call("POST", "/auth/v1/webhooks", { json })).body;
    cleanups.push(() => call("DELETE", `/auth/v1/webhooks/${data._id}`));
    return (await call("POST", `/auth/v1/webhooks/${data._id}/test`)).body.data;
  }

  const deleteFile = (id: string) => call("DELETE", `/docs/v1/uploads/${id}`);
  const form = randomWav(FORM_BYTES);
  const resumable = randomWav(RESUMABLE_BYTES);
  let id = "";
  let user = "";
  const update = (ifMatch: string, status: number) =>
    call("PATCH", `/auth/v1/users/${user}`, { json: { firstname: name }, headers: { "If-Match": ifMatch }, status });

  /** Each step has a name, its work, and the likely cause of a failure. */
  const steps: [name: string, run: () => Promise<void>, cause: string][] = [
    [
      "health",
      async () => void (await call("GET", "/health")),
      "The URL is wrong, or a binding, a setting or a migration is missing.",
    ],
    [
      "clock",
      async () => {
        const { headers } = await call("GET", "/health");
        const skew = Date.now() - Date.parse(headers.get("Date") ?? new Date().toUTCString());
        if (Math.abs(skew) > CLOCK_SKEW_MILLISECONDS)
          throw new Refusal(`The clocks differ by ${Math.round(skew / 60_000)} minutes.`);
      },
      "Set the clock of this machine.",
    ],
    [
      "key",
      async () => void (await call("GET", "/docs/v1/usage")),
      "STOWAGE_KEY must be a secret key of this deployment.",
    ],
    [
      "upload",
      async () => {
        const body = new FormData();
        body.append("file", new File([form], `${name}.wav`));
        id = (await call("POST", "/docs/v1/uploads", { body })).body.data._id;
        cleanups.push(() => deleteFile(id));
      },
      "The bucket is missing, or the quota of the team is exceeded.",
    ],
    [
      "process",
      () => processed(id, form),
      "The queue has no consumer. After bytes_altered: the ETag of a multipart object is not the MD5 of its parts.",
    ],
    [
      "list",
      async () => {
        const { data } = (await call("GET", `/docs/v1/uploads?name=${name}`)).body;
        if (data[0]?._id !== id) throw new Refusal("The file is not listed.");
      },
      "The database is not that of this deployment.",
    ],
    [
      "signed URL",
      async () => expectRange((await call("GET", `/docs/v1/uploads/${id}`)).body.signedUrl, form),
      "S3_ENDPOINT, S3_BUCKET or the S3 key is wrong.",
    ],
    [
      "link",
      async () => {
        const { data } = (await call("POST", `/docs/v1/uploads/${id}/links`, { json: {} })).body;
        await expectRange(data.url, form);
        await call("DELETE", `/docs/v1/links/${data._id}`);
        const { status } = await createClient(data.url, null, { signal }).send("GET", "");
        if (status !== 404) throw new Refusal(`A revoked link responded ${status}.`);
      },
      "LINK_HOST does not lead to this Worker, or something in between caches or strips Range.",
    ],
    [
      "resumable upload",
      async () => {
        const tus = { "Tus-Resumable": "1.0.0" };
        const metadata = `filename ${Buffer.from(`${name}-2.wav`).toString("base64")}`;
        const creation = { ...tus, "Upload-Length": `${RESUMABLE_BYTES}`, "Upload-Metadata": metadata };
        const { headers } = await call("POST", "/docs/v1/uploads/resumable", { headers: creation, status: 201 });
        const location = headers.get("Location") ?? "";
        cleanups.push(() => send("DELETE", location, { headers: tus }));
        const append = (offset: number, body: BodyInit, aborted: AbortSignal) =>
          send("PATCH", location, {
            headers: { ...tus, "Upload-Offset": `${offset}`, "Content-Type": "application/offset+octet-stream" },
            body,
            signal: aborted,
          });
        /** Sends what the service has not received. @returns from which offset, and the response */
        const resume = async (): Promise<[offset: number, response: Response]> => {
          let reply = await send("HEAD", location, { headers: tus });
          for (; reply.status === 423; reply = await send("HEAD", location, { headers: tus })) {
            await sleep(POLL_MILLISECONDS, undefined, { signal });
          }
          const offset = Number(reply.headers.get("Upload-Offset") ?? Number.NaN);
          if (!(offset >= 0)) throw new Refusal(`HEAD responded ${reply.status} without an offset.`);
          return [offset, await append(offset, resumable.subarray(offset), signal)];
        };
        // The connection is cut while the service waits for the rest.
        const cut = new AbortController();
        const body = new ReadableStream({
          start: (controller) => controller.enqueue(resumable.subarray(0, CUT_BYTES)),
        });
        const interrupted = append(0, body, cut.signal).catch(() => undefined);
        await sleep(2 * POLL_MILLISECONDS, undefined, { signal });
        cut.abort();
        await interrupted;
        let [offset, resumed] = await resume();
        // The service learned of the cut after it had stated the offset. As any client, ask again.
        if (resumed.status === 409) [offset, resumed] = await resume();
        const fileId = resumed.headers.get("Content-Location")?.split("/").at(-1);
        if (resumed.status !== 204 || !fileId) throw new Refusal(`Resuming at ${offset} responded ${resumed.status}.`);
        cleanups[cleanups.length - 1] = () => deleteFile(fileId);
        await processed(fileId, resumable);
      },
      "Something in between blocks PATCH or the tus headers.",
    ],
    [
      "ETag",
      async () => {
        const email = `${name}@example.com`;
        user = (await call("POST", "/auth/v1/users", { json: { email, password: randomUUID() } })).body.data._id;
        cleanups.push(() => call("DELETE", `/auth/v1/users/${user}`));
        // Cloudflare compresses the response for clients that accept it, and then weakens the tag.
        const headers = { "Accept-Encoding": "gzip, br" };
        const tag = (await call("GET", `/auth/v1/users/${user}`, { headers })).headers.get("ETag");
        if (!tag) throw new Refusal("A user has no ETag.");
        await update(tag, 200);
      },
      "Something in between changes ETag or If-Match, and the service must accept a weak tag as its version.",
    ],
    [
      "events",
      async () => {
        await update('"9"', 412);
        const { data } = (await call("GET", `/auth/v1/events?subject=${user}`)).body;
        const types = data.map(({ type }: { type: string }) => type).join(", ");
        if (types !== "user.updated, user.created") throw new Refusal(`The events of a user are: ${types || "none"}.`);
      },
      "changes() does not refer to the previous statement of a D1 batch: a change has no event, or a failed one has.",
    ],
    [
      "own zone",
      async () => {
        // The service receives the message itself, and rejects it, because the route has no POST.
        const attempt = await sendTestEvent(new URL("/health", url).href);
        const isReceived = attempt.httpStatus === 405 && attempt.responseBody.includes("method_not_allowed");
        if (!isReceived) throw new Refusal(`The test event did not arrive: ${JSON.stringify(attempt)}`);
      },
      "wrangler.toml needs the compatibility flag global_fetch_strictly_public: without it, webhooks reach no Worker in this zone.",
    ],
    [
      "webhook",
      async () => {
        const attempt = await sendTestEvent(webhook ?? "");
        if (!/^2/.test(`${attempt.httpStatus}`)) throw new Refusal(`The test event failed: ${JSON.stringify(attempt)}`);
      },
      "STOWAGE_WEBHOOK must be an https URL that responds 2xx to a POST.",
    ],
    [
      "revoke",
      async () => {
        const { id: keyId, key: token } = (await call("POST", "/auth/v1/apikeys", { json: { name } })).body.data;
        cleanups.push(() => send("DELETE", `/auth/v1/apikeys/${keyId}`));
        await call("GET", "/docs/v1/usage", { token });
        await call("DELETE", `/auth/v1/apikeys/${keyId}`);
        await call("GET", "/docs/v1/usage", { token, status: 401 });
      },
      "Something in between caches responses.",
    ],
    [
      "delete",
      async () => {
        for (const cleanup of cleanups.splice(0)) await cleanup();
        await call("GET", `/docs/v1/uploads/${id}`, { status: 404 });
      },
      "The bucket or the database does not accept deletions.",
    ],
  ];

  try {
    for (const [step, run, cause] of steps) {
      if (step === "webhook" && !webhook) continue;
      const startedAt = Date.now();
      try {
        await run();
        print(`ok    ${step} (${Date.now() - startedAt} ms)`);
      } catch (error) {
        const { message, cause: reason } = error as Error;
        print(`FAIL  ${step}: ${message}${reason instanceof Error ? ` (${reason.message})` : ""}\n      ${cause}`);
        return false;
      }
    }
    return true;
  } finally {
    for (const cleanup of cleanups) await cleanup().catch((error: Error) => print(`Not deleted: ${error.message}`));
  }
}
