/**
 * `npm run smoke -- URL` proves from outside that a deployment works, in at most three minutes. STOWAGE_KEY is a secret key
 * with all scopes. OPERATOR_TOKEN in its place runs the steps with a new team in each database. STOWAGE_WEBHOOK, if set, is the https URL of a webhook endpoint that responds 2xx. It prints a line per
 * step, stops at the first failure, and deletes what it created. At last it measures the rate limit of a client IP.
 */
import { measureBurst, runSmoke, runSmokePerDatabase } from "./smoke-steps.ts";

const [url] = process.argv.slice(2);
const { STOWAGE_KEY: key, OPERATOR_TOKEN: operatorToken } = process.env;
if (!url || !(key || operatorToken)) {
  console.error("Usage: STOWAGE_KEY=stow_sk_… npm run smoke -- https://stowage.YOUR-SUBDOMAIN.workers.dev");
  process.exit(2);
}
if (!/^https?:\/\//.test(url) || !URL.canParse(url)) {
  console.error(`"${url}" is not a URL. It must start with https:// or http://.`);
  process.exit(2);
}
const options = { url, webhook: process.env.STOWAGE_WEBHOOK, print: console.log };
const isFine = await (key
  ? runSmoke({ ...options, key })
  : runSmokePerDatabase({ ...options, operatorToken: operatorToken ?? "" }));
if (isFine) await measureBurst(options);
process.exitCode = isFine ? 0 : 1;
