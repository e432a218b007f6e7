import type { Deps } from "../deps.ts";
import type { Actor } from "../domain/accounts/authorization.ts";
import type { Code } from "../errors.ts";

/** What Hono's context holds for each request. */
export type AppEnv = {
  Bindings: Env;
  Variables: {
    requestId: string;
    /** Set first, so that logging works even if `deps` fails. */
    log: Deps["log"];
    deps: Deps;
    /** Set once the caller is authenticated, for the log. */
    actor?: Actor;
    /** The error code of the response, for the log. */
    code?: Code;
  };
};
