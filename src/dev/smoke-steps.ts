import { createHash, randomBytes, randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type Attempt, Stowage, StowageError } from "../client/index.ts";
import { RATE_LIMITS } from "../rate-limits.ts";
import { messageOf, Refusal } from "./refusal.ts";

/* The steps of the smoke test. They repeat no request: what fails once is reported. */

const connect = (url: string, key: string | null) => new Stowage({ url, key, maxRetries: 0 });

/** @throws Refusal unless `call` fails with the status */
async function expectStatus(status: number, what: string, call: Promise<unknown>): Promise<void> {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (error === undefined) throw new Refusal(`${what} succeeded instead of responding ${status}.`);
  if (!(error instanceof StowageError) || error.status !== status) throw error;
}

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
const MAX_RESUME_RETRIES = 10;
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

interface Health {
  /** Only for the operator token. */
  databases?: { number: number; status: string }[];
}

/** @throws Refusal unless the service is healthy */
async function fetchHealth(url: string, init: RequestInit): Promise<Response> {
  const response = await fetch(new URL("/health", url), { redirect: "error", ...init });
  if (!response.ok) throw new Refusal(`/health responded ${response.status}: ${(await response.text()).slice(0, 300)}`);
  return response;
}

/** Runs all steps with a new team in each database. @returns whether all succeeded */
export async function runSmokePerDatabase({
  operatorToken,
  ...options
}: Omit<SmokeOptions, "key"> & { operatorToken: string }): Promise<boolean> {
  const { print } = options;
  const { teams } = connect(options.url, operatorToken);
  try {
    const headers = { Authorization: `Bearer ${operatorToken}` };
    const { databases } = (await (await fetchHealth(options.url, { headers })).json()) as Health;
    if (!databases) throw new Refusal("OPERATOR_TOKEN is not the operator token of this deployment.");
    for (const { number, status } of databases) {
      print(`Database ${number}${status === "full" ? " is full, and takes no new team to test it" : ""}`);
      if (status === "full") continue;
      const { team, apiKey } = await teams.create({ name: `smoke-${randomUUID()}`, database: number });
      try {
        if (team.database !== number) throw new Refusal(`The team is in database ${team.database}.`);
        if (!(await runSmoke({ ...options, key: apiKey.key }))) return false;
      } finally {
        await teams.delete(team.id);
      }
    }
    return true;
  } catch (error) {
    print(`FAIL  ${messageOf(error)}`);
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
  const visitor = connect(url, null);
  const signal = AbortSignal.timeout(LIMIT_MILLISECONDS);
  const ask = () =>
    visitor.usage({ signal }).then(
      () => 200,
      (error: unknown) => {
        if (error instanceof StowageError && error.status > 0) return error.status;
        throw error;
      },
    );
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

  const stowage = connect(url, key);
  const { files, users, webhooks } = stowage;
  const call = { signal };

  /** Fails unless the first bytes of the URL are those of the file, by a range request without a token. */
  async function expectRange(target: string, bytes: Buffer): Promise<void> {
    const { host } = new URL(target);
    const response = await fetch(target, { headers: { Range: "bytes=100-199" }, signal });
    const received = Buffer.from(await response.arrayBuffer());
    if (response.status !== 206)
      throw new Refusal(`${host} responded ${response.status} to a range request: ${received.subarray(0, 300)}`);
    if (!received.equals(bytes.subarray(100, 200))) throw new Refusal(`${host} sent other bytes than were uploaded.`);
  }

  async function processed(id: string, bytes: Buffer): Promise<void> {
    const end = Date.now() + processingMilliseconds;
    for (;;) {
      const { status, failure, sha256: stored, audio } = await files.get(id, call);
      if (status === "failed") throw new Refusal(`Processing failed: ${failure?.code}: ${failure?.message}`);
      if (status === "completed") {
        if (stored !== sha256(bytes)) throw new Refusal("The stored SHA-256 is not that of the file.");
        const seconds = (bytes.length - 44) / SAMPLE_RATE;
        if (!(Math.abs((audio?.durationSeconds ?? 0) - seconds) <= 1))
          throw new Refusal("The duration of the audio is wrong.");
        return;
      }
      if (Date.now() > end) throw new Refusal(`The file is still ${status} after ${processingMilliseconds / 1000} s.`);
      await sleep(POLL_MILLISECONDS, undefined, { signal });
    }
  }

  /** Creates a webhook, and sends a message to it. @returns how its endpoint responded */
  async function sendTestEvent(endpoint: string): Promise<Attempt> {
    const { id } = await webhooks.create({ url: endpoint, types: ["webhook.disabled"] }, call);
    cleanups.push(() => webhooks.delete(id));
    return webhooks.test(id, call);
  }

  const form = randomWav(FORM_BYTES);
  const resumable = randomWav(RESUMABLE_BYTES);
  let id = "";
  let user = "";
  const update = (ifMatch: string) =>
    users.update(user, { firstName: name }, { ...call, headers: { "If-Match": ifMatch } });

  /** Each step has a name, its work, and the likely cause of a failure. */
  const steps: [name: string, run: () => Promise<void>, cause: string][] = [
    [
      "health",
      async () => void (await fetchHealth(url, { signal })),
      "The URL is wrong, or a binding, a setting or a migration is missing.",
    ],
    [
      "clock",
      async () => {
        const { headers } = await fetchHealth(url, { signal });
        const skew = Date.now() - Date.parse(headers.get("Date") ?? new Date().toUTCString());
        if (Math.abs(skew) > CLOCK_SKEW_MILLISECONDS)
          throw new Refusal(`The clocks differ by ${Math.round(skew / 60_000)} minutes.`);
      },
      "Set the clock of this machine.",
    ],
    ["key", async () => void (await stowage.usage(call)), "STOWAGE_KEY must be a secret key of this deployment."],
    [
      "upload",
      async () => {
        const upload = { ...call, resumableFromBytes: FORM_BYTES + 1 };
        id = (await files.upload(new File([form], `${name}.wav`), upload)).id;
        cleanups.push(() => files.delete(id));
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
        const { items } = await files.list({ name }, call);
        if (items[0]?.id !== id) throw new Refusal("The file is not listed.");
      },
      "The database is not that of this deployment.",
    ],
    [
      "signed URL",
      async () => expectRange(await files.createSignedUrl(id, {}, call), form),
      "S3_ENDPOINT, S3_BUCKET or the S3 key is wrong.",
    ],
    [
      "link",
      async () => {
        const link = await stowage.links.create(id, {}, call);
        await expectRange(link.url, form);
        await stowage.links.delete(link.id, call);
        const { status } = await fetch(link.url, { signal });
        if (status !== 404) throw new Refusal(`A revoked link responded ${status}.`);
      },
      "LINK_HOST does not lead to this Worker, or something in between caches or strips Range.",
    ],
    [
      "resumable upload",
      async () => {
        const file = new File([resumable], `${name}-2.wav`);
        // The connection is cut while the service receives the second part.
        const cut = new AbortController();
        let resumeUrl = "";
        const cleanup = () => stowage.unfinishedUploads.cancel(resumeUrl);
        const interrupted = files.upload(file, {
          signal: AbortSignal.any([signal, cut.signal]),
          resumableFromBytes: 1,
          onResumeUrl: (created) => {
            resumeUrl = created;
            cleanups.push(cleanup);
          },
          onProgress: (sentBytes) => {
            if (sentBytes >= CUT_BYTES) cut.abort(new Error("cut"));
          },
        });
        await interrupted.catch((error) => {
          if (!cut.signal.aborted) throw error;
        });
        // The service may still be saving what it received.
        const { id: fileId } = await files.upload(file, { ...call, resumeUrl, maxRetries: MAX_RESUME_RETRIES });
        cleanups[cleanups.indexOf(cleanup)] = () => files.delete(fileId);
        await processed(fileId, resumable);
      },
      "Something in between blocks PATCH or the tus headers.",
    ],
    [
      "ETag",
      async () => {
        const email = `${name}@example.com`;
        user = (await users.create({ email, password: randomUUID() }, call)).id;
        cleanups.push(() => users.delete(user));
        // Cloudflare compresses the response for clients that accept it, and then weakens the tag.
        const headers = { "Accept-Encoding": "gzip, br" };
        const { response } = await users.get(user, { ...call, headers }).withResponse();
        const tag = response.headers.get("ETag");
        if (!tag) throw new Refusal("A user has no ETag.");
        // The client would strengthen the tag of a `version`.
        await update(tag);
      },
      "Something in between changes ETag or If-Match, and the service must accept a weak tag as its version.",
    ],
    [
      "events",
      async () => {
        await expectStatus(412, "An update of another version", update('"9"'));
        const { items } = await stowage.events.list({ subject: user }, call);
        const types = items.map(({ type }) => type).join(", ");
        if (types !== "user.updated, user.created") throw new Refusal(`The events of a user are: ${types || "none"}.`);
      },
      "changes() does not refer to the previous statement of a D1 batch: a change has no event, or a failed one has.",
    ],
    [
      "own zone",
      async () => {
        // The service receives the message itself, and rejects it, because the route has no POST.
        const attempt = await sendTestEvent(new URL("/health", url).href);
        const isReceived = attempt.httpStatus === 405 && attempt.responseBody?.includes("method_not_allowed");
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
        const created = await stowage.keys.create({ name }, call);
        const revoke = () => stowage.keys.delete(created.id);
        cleanups.push(() => revoke().catch(() => undefined));
        const revoked = connect(url, created.key);
        await revoked.usage(call);
        await revoke();
        await expectStatus(401, "A revoked key", revoked.usage(call));
      },
      "Something in between caches responses.",
    ],
    [
      "delete",
      async () => {
        for (const cleanup of cleanups.splice(0)) await cleanup();
        await expectStatus(404, "A deleted file", files.createSignedUrl(id, {}, call));
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
        const { cause: reason } = error as Error;
        const why = reason instanceof Error ? ` (${reason.message})` : "";
        print(`FAIL  ${step}: ${messageOf(error)}${why}\n      ${cause}`);
        return false;
      }
    }
    return true;
  } finally {
    for (const cleanup of cleanups) await cleanup().catch((error: Error) => print(`Not deleted: ${error.message}`));
  }
}
