import type { Actor } from "../access/authorization.ts";
import type { RequestLimit } from "../access/limiter.ts";
import type { Deps } from "../deps.ts";
import type { Code } from "../errors.ts";

/** The contents of Hono's context for each request. */
export type AppEnv = {
  Bindings: Env;
  Variables: {
    requestId: string;
    /** Set first, so that logging works even if `deps` fails. */
    log: Deps["log"];
    deps: Deps;
    /** Set once the caller is authenticated, for the log. */
    actor?: Actor;
    /** The limit that the caller's request counts for. */
    limit?: RequestLimit;
    /** Resolves once the request is counted: to the limit that it exceeds, or null. */
    exceededLimit?: Promise<RequestLimit | null>;
    /** The error code of the response, for the log. */
    code?: Code;
  };
};
