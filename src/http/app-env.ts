import type { Credential } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";

/** The contents of Hono's context for each request. */
export type AppEnv = {
  Bindings: Env;
  Variables: {
    requestId: string;
    /** Set first, so that logging works even if `deps` fails. */
    log: Deps["log"];
    deps: Deps;
    /** The token of the request, if it has one, with its caller. */
    credential?: Credential;
    /** The error code of the response, for the log. */
    code?: string;
  };
};
