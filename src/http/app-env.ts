import type { Deps } from "../deps.ts";
import type { Actor } from "../domain/accounts/authorization.ts";
import type { Code } from "../errors.ts";

/** What Hono's context holds for each request. */
export type AppEnv = {
  Bindings: Env;
  Variables: {
    requestId: string;
    /** Set before all else: it works when `deps` can't be had. */
    log: Deps["log"];
    deps: Deps;
    /** Set once the caller is authenticated, for the log. */
    actor?: Actor;
    /** The code of the error that was answered, for the log. */
    code?: Code;
  };
};
