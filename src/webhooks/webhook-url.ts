const MAX_CHARACTERS = 2048;
const INTERNAL_HOST = /(?:^|\.)(?:local|internal|localhost)$/;
const IP_LITERAL = /^(?:\[.*\]|\d+(?:\.\d+){3})$/;
const LOOPBACK_HOST = /^(?:(?:.+\.)?localhost|127(?:\.\d+){3}|\[::1\])$/;

/**
 * Validates and returns the URL as `URL` normalizes it, which gives all spellings of an IP address the same form.
 * Deliveries are sent to the normalized URL. A Worker cannot see whether a name resolves to a private address.
 *
 * The service's own hosts are allowed. A delivery has no token, so the API rejects it, which causes no event.
 * @param isInsecureAllowed also allows http, other ports and loopback, for local development
 */
export function validateWebhookUrl(text: string, isInsecureAllowed: boolean): { url: string } | { problem: string } {
  if (text.length > MAX_CHARACTERS) return { problem: `Must have at most ${MAX_CHARACTERS} characters.` };
  if (!URL.canParse(text)) return { problem: "Must be an absolute URL." };
  const url = new URL(text);
  url.hash = "";
  const problem = findProblem(url, isInsecureAllowed);
  return problem === null ? { url: url.href } : { problem };
}

function findProblem({ protocol, username, password, hostname, port }: URL, isInsecureAllowed: boolean): string | null {
  if (protocol !== "https:" && !(isInsecureAllowed && protocol === "http:")) return "Must start with https://.";
  if (username !== "" || password !== "") return "Must not contain a user name or password.";
  if (isInsecureAllowed && LOOPBACK_HOST.test(hostname)) return null;
  if (port !== "" && !isInsecureAllowed) return "Must use port 443.";
  if (IP_LITERAL.test(hostname)) return "Must have a host name instead of an IP address.";
  if (hostname.endsWith(".") || hostname.includes("..")) return "Must not have an empty label in its host name.";
  if (!hostname.includes(".") || INTERNAL_HOST.test(hostname)) return "Must have a public host name.";
  return null;
}
