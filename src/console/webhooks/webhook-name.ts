import type { Webhook } from "../../client/index.ts";

/** Without the path of the URL, which may contain a secret. */
export const nameOfWebhook = ({ description, url }: Pick<Webhook, "description" | "url">): string =>
  description || new URL(url).host;
