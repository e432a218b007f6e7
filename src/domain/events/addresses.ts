import type { Deps } from "../../deps.ts";

/** What an address is judged by. */
export interface Surroundings {
  /** Hosts, with their ports, by which the service itself is reached. */
  ownHosts: string[];
  s3Host: string;
  /** Also http, other ports, and this machine: for local development. */
  isInsecureAllowed: boolean;
}

/** Those of a Worker that is reached by `ownHost`, and by those of its settings. */
export const surroundingsOf = ({ settings }: Deps, ownHost: string): Surroundings => ({
  ownHosts: [ownHost, ...settings.ownHosts],
  s3Host: new URL(settings.storeOrigin).host,
  isInsecureAllowed: settings.isInsecureWebhookAllowed,
});

const MAX_LENGTH = 2048;
const INTERNAL = /(?:^|\.)(?:local|internal|localhost)$/;
const IP_LITERAL = /^(?:\[.*\]|\d+(?:\.\d+){3})$/;
const LOOPBACK = /^(?:(?:.+\.)?localhost|127(?:\.\d+){3}|\[::1\])$/;

/**
 * The address in the one spelling that `URL` gives it, which turns every spelling of an IP address into the usual one;
 * what is judged is that, and that is what is sent to. A name that resolves to a private address is not seen here.
 * @returns a text that says what is wrong with it, in `refusal`
 */
export function judgeAddress(text: string, around: Surroundings): { url: string } | { refusal: string } {
  if (text.length > MAX_LENGTH) return { refusal: `Must have ${MAX_LENGTH} characters at most.` };
  if (!URL.canParse(text)) return { refusal: "Must be an absolute URL." };
  const url = new URL(text);
  url.hash = "";
  const refusal = refusalOf(url, around);
  return refusal === null ? { url: url.href } : { refusal };
}

function refusalOf(url: URL, { ownHosts, s3Host, isInsecureAllowed }: Surroundings): string | null {
  const { protocol, hostname, host } = url;
  if (protocol !== "https:" && !(isInsecureAllowed && protocol === "http:")) return "Must begin with https://.";
  if (url.username !== "" || url.password !== "") return "Must not hold a user name or password.";
  const isOwn = ownHosts.some((own) => host === own || hostname === nameOf(own, isInsecureAllowed));
  if (isOwn) return "Must not be this service itself.";
  const s3Name = nameOf(s3Host, isInsecureAllowed);
  if (host === s3Host || hostname === s3Name || hostname.endsWith(`.${s3Name}`)) return "Must not be the file storage.";
  if (isInsecureAllowed && LOOPBACK.test(hostname)) return null;
  if (url.port !== "" && !isInsecureAllowed) return "Must use port 443.";
  if (IP_LITERAL.test(hostname)) return "Must have a host name, and not an IP address.";
  if (hostname.endsWith(".") || hostname.includes("..")) return "Must not have an empty label in its host name.";
  if (!hostname.includes(".") || INTERNAL.test(hostname)) return "Must have a public host name.";
  return null;
}

/** Without its port. A port tells this machine's services apart, and only there may an address have another. */
const nameOf = (host: string, isInsecureAllowed: boolean) =>
  isInsecureAllowed ? host : host.replace(/:\d+$/, "").toLowerCase();
