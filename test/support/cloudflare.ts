import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { DatabaseSync } from "node:sqlite";

/*
 * A Cloudflare API with one empty account, as far as wrangler uses it for a deployment. Databases run the SQL they get.
 */

export const ACCOUNT = "0123456789abcdef0123456789abcdef";

interface ApiRequest {
  /** The parts of the path at the asterisks of the pattern. */
  names: string[];
  body: Buffer<ArrayBuffer>;
  type: string;
  query: URLSearchParams;
}
type Handler = (request: ApiRequest) => unknown;

class ApiError extends Error {
  readonly code: number;
  readonly status: number;

  constructor(code: number, message: string, status = 404) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer<ArrayBuffer>> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const jsonOf = ({ body }: ApiRequest) => JSON.parse(body.toString());

/** Runs one or more statements. @returns the rows of the last one */
function runSql(database: DatabaseSync, sql: string, params: string[]): unknown[] {
  if (/^\s*(select|pragma)/i.test(sql)) return database.prepare(sql).all(...params);
  database.exec(sql);
  return [];
}

export class CloudflareApi {
  readonly databases = new Map<string, { uuid: string; sql: DatabaseSync; region: string }>();
  readonly buckets = new Set<string>();
  readonly queues = new Map<string, string>();
  /** The consumers of each queue, by its id. */
  readonly consumers = new Map<string, object[]>();
  /** The secrets of the deployed Worker; null before the first deployment. */
  secrets: Record<string, string> | null = null;
  crons: string[] = [];
  /** The placement of the last upload. */
  placement: object | undefined;
  /** Whether queries report where the database is. */
  isRegionReported = true;
  /** Every request, such as `POST /accounts/…/d1/database`. */
  readonly requests: string[] = [];
  /** Requests that no handler knows. */
  readonly unknown: string[] = [];
  readonly #server: Server = createServer((request, response) => this.#serve(request, response));

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/client/v4`;
  }

  /** The environment of a wrangler that deploys to this account. */
  environment(home: string): NodeJS.ProcessEnv {
    return {
      ...process.env,
      CLOUDFLARE_ACCOUNT_ID: ACCOUNT,
      CLOUDFLARE_API_BASE_URL: this.url,
      CLOUDFLARE_API_TOKEN: "token",
      HOME: home,
      WRANGLER_SEND_METRICS: "false",
      WRANGLER_WRITE_LOGS: "false",
      NO_COLOR: "1",
    };
  }

  async start(): Promise<void> {
    await new Promise<void>((listening) => this.#server.listen(0, "127.0.0.1", listening));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", "http://localhost");
    const path = url.pathname.replace("/client/v4", "").replace(`/accounts/${ACCOUNT}`, "");
    const line = `${request.method} ${path}`;
    this.requests.push(line);
    const send = (status: number, body: object) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(body));
    };
    try {
      const type = request.headers["content-type"] ?? "";
      const result = await this.#handle(line, {
        names: [],
        body: await bodyOf(request),
        type,
        query: url.searchParams,
      });
      const result_info = { page: 1, per_page: 100, count: 0, total_count: 0, total_pages: 1 };
      send(200, { success: true, errors: [], messages: [], result, result_info });
    } catch (error) {
      const { code = 1, message, status = 500 } = error as ApiError;
      send(status, { success: false, errors: [{ code, message }], messages: [], result: null });
    }
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  /** Handles a call without HTTP. */
  call(line: string, json: object = {}): unknown {
    const body = Buffer.from(JSON.stringify(json));
    return this.#handle(line, { names: [], body, type: "application/json", query: new URLSearchParams() });
  }

  #handle(line: string, request: ApiRequest): unknown {
    for (const [pattern, handler] of Object.entries(this.#handlers)) {
      const match = new RegExp(`^${pattern.replaceAll("*", "([^/]+)")}$`).exec(line);
      if (match) return handler({ ...request, names: match.slice(1) });
    }
    this.unknown.push(line);
    throw new ApiError(7003, `No route for ${line}`);
  }

  readonly #handlers: Record<string, Handler> = {
    "GET /user/tokens/verify": () => ({ id: "token", status: "active" }),
    "GET /user": () => ({ id: "user", email: "ada@example.com" }),
    "GET /memberships": () => [{ account: { id: ACCOUNT, name: "Ada's account" } }],
    "GET /accounts": () => [{ id: ACCOUNT, name: "Ada's account" }],
    "POST /d1/database": (request) => {
      const { name, primary_location_hint: hint = "enam" } = jsonOf(request);
      if (this.databases.has(name)) throw new ApiError(7502, "database with that name already exists", 400);
      const uuid = randomUUID();
      this.databases.set(name, { uuid, sql: new DatabaseSync(":memory:"), region: hint.toUpperCase() });
      return { uuid, name, version: "production" };
    },
    "GET /d1/database/*": ({ names: [name = ""] }) => {
      const found = this.databases.get(name);
      if (!found) throw new ApiError(7404, "The database does not exist.");
      return { uuid: found.uuid, name };
    },
    "GET /d1/database": () => [...this.databases].map(([name, { uuid }]) => ({ uuid, name })),
    "POST /d1/database/*/query": (request) => {
      const found = [...this.databases.values()].find(({ uuid }) => uuid === request.names[0]);
      const { sql, params = [] } = jsonOf(request);
      const meta = { duration: 1, ...(this.isRegionReported && { served_by_region: found?.region }) };
      return [{ results: runSql(found?.sql as DatabaseSync, sql, params), success: true, meta }];
    },
    "POST /r2/buckets": (request) => {
      const { name } = jsonOf(request);
      if (this.buckets.has(name)) {
        throw new ApiError(10004, "The bucket you tried to create already exists, and you own it.", 409);
      }
      this.buckets.add(name);
      return {};
    },
    "GET /r2/buckets/*": ({ names: [name = ""] }) => {
      if (!this.buckets.has(name)) throw new ApiError(10006, "The specified bucket does not exist.");
      return { name };
    },
    "PUT /r2/buckets/*/objects/.+": () => ({}),
    "GET /r2/buckets/*/lifecycle": ({ names: [name = ""] }) => {
      if (!this.buckets.has(name)) throw new ApiError(10006, "The specified bucket does not exist.");
      return { rules: [] };
    },
    "POST /queues": (request) => {
      const { queue_name: name } = jsonOf(request);
      if (this.queues.has(name)) {
        throw new ApiError(
          11009,
          `Queue name '${name}' is already taken. Please use a different name and try again.`,
          409,
        );
      }
      this.queues.set(name, randomUUID().replaceAll("-", ""));
      return { queue_id: this.queues.get(name), queue_name: name };
    },
    "GET /queues": ({ query }) => {
      const listed = [...this.queues].map(([queue_name, queue_id]) => ({
        queue_name,
        queue_id,
        consumers: this.consumers.get(queue_id) ?? [],
      }));
      return listed.filter(({ queue_name }) => [queue_name, null].includes(query.get("name")));
    },
    "GET /queues/*/consumers": ({ names: [id = ""] }) => this.consumers.get(id) ?? [],
    "POST /queues/*/consumers": (request) => {
      const [id = ""] = request.names;
      const consumer = jsonOf(request);
      this.consumers.set(id, [{ ...consumer, script: consumer.script_name, consumer_id: id }]);
      return {};
    },
    "PUT /queues/*/consumers/*": () => ({}),
    "GET /workers/services/*": () => {
      this.#requireWorker();
      return {
        default_environment: { environment: "production", script: { tag: "1", last_deployed_from: "wrangler" } },
      };
    },
    "GET /workers/scripts/*/secrets": () => {
      this.#requireWorker();
      return Object.keys(this.secrets ?? {}).map((name) => ({ name, type: "secret_text" }));
    },
    "GET /workers/scripts/*/settings": () => {
      this.#requireWorker();
      return { bindings: [] };
    },
    "GET /workers/scripts/*/deployments": () => {
      this.#requireWorker();
      return { deployments: [] };
    },
    "POST /workers/scripts/*/assets-upload-session": () => ({ jwt: "assets", buckets: [] }),
    "PUT /workers/scripts/*": async (request) => {
      const { bindings } = await this.#uploaded(request);
      const sent = bindings.filter((one) => one.type === "secret_text").map(({ name, text }) => [name, text]);
      this.secrets = { ...this.secrets, ...Object.fromEntries(sent) };
      return { id: "stowage", startup_time_ms: 10, deployment_id: randomUUID() };
    },
    "POST /workers/scripts/*/versions": async (request) => {
      await this.#uploaded(request);
      return { id: randomUUID(), startup_time_ms: 10, metadata: {}, resources: { script: { etag: "1" } } };
    },
    "POST /workers/scripts/*/deployments": () => ({ id: randomUUID() }),
    "PATCH /workers/scripts/*/script-settings": () => ({
      tags: [],
      tail_consumers: [],
      logpush: false,
      observability: {},
    }),
    "GET /workers/workers/*": () => ({ name: "stowage", subdomain: { enabled: true, previews_enabled: false } }),
    "GET /workers/subdomain": () => ({ subdomain: "acme" }),
    "GET /workers/scripts/*/subdomain": () => ({ enabled: true, previews_enabled: false }),
    "POST /workers/scripts/*/subdomain": () => ({ enabled: true, previews_enabled: false }),
    "PUT /workers/scripts/*/schedules": (request) => {
      this.crons = jsonOf(request).map(({ cron }: { cron: string }) => cron);
      return {};
    },
  };

  /** The metadata of an uploaded Worker. */
  async #uploaded({ body, type }: ApiRequest): Promise<{ bindings: Record<string, string>[]; placement?: object }> {
    const form = await new Response(body, { headers: { "Content-Type": type } }).formData();
    const metadata = JSON.parse(String(form.get("metadata")));
    this.placement = metadata.placement;
    return metadata;
  }

  #requireWorker(): void {
    if (!this.secrets) throw new ApiError(10007, "This Worker does not exist on your account.");
  }
}
