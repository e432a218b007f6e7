/** The placement of the Worker: near its database, because a request makes several queries. */

/** The location hints that D1 and R2 both take, each with a cloud region in its middle. Chosen by geography, not measured. */
export const REGIONS: Record<string, string> = {
  weur: "aws:eu-west-2",
  eeur: "aws:eu-central-1",
  apac: "aws:ap-southeast-1",
  oc: "aws:ap-southeast-2",
  wnam: "aws:us-west-1",
  enam: "aws:us-east-1",
};

/** `[placement]` of wrangler.toml: `mode`, or one of the others. */
export interface Placement {
  mode?: string;
  region?: string;
  host?: string;
  hostname?: string;
}

/** Whether a deployment may replace it: it is the default, or the region of an earlier deployment. */
export const isReplaceable = ({ mode, region }: Placement = {}): boolean =>
  mode === "smart" || Object.values(REGIONS).includes(region ?? "");

export const describePlacement = ({ mode, region, host, hostname }: Placement = {}): string =>
  region ?? host ?? hostname ?? mode ?? "off";

/**
 * Returns the location hint of the place that served the query, in the output of `wrangler d1 execute --json`. Only the
 * primary database serves queries without a session. Null if D1 doesn't say.
 */
export function locationOf(json: string): string | null {
  const [result] = JSON.parse(json) as { meta?: { served_by_region?: string } }[];
  return result?.meta?.served_by_region?.toLowerCase() ?? null;
}
