import type { Delivery, Webhook } from "../../client/stowage.ts";
import { Time } from "../parts/values.tsx";

/* Whether an endpoint works, from the latest deliveries. Pure, so that it is tested without a browser. */

type Judged = Pick<Delivery, "status" | "attempts" | "nextAttemptAt">;
export type Attempt = Delivery["attempts"][number];

/** After this many failures without a success, an endpoint counts as failing. */
const FAILING_ATTEMPTS = 3;

const REASONS = {
  requested: "Disabled",
  gone: "Disabled: endpoint returned 410 Gone",
  failing: "Disabled: failing for 5 days",
};

const ERRORS: Record<NonNullable<Attempt["error"]>, string> = {
  timeout: "No response within 15 seconds",
  connection_failed: "Connection failed",
  address_refused: "URL not allowed",
  secret_unreadable: "The signing secret can't be decrypted",
  webhook_disabled: "Not sent because the webhook was disabled",
  event_purged: "Not sent because the event has expired",
};

/** The result of an attempt: its status code, or why there is none. */
export const resultOf = ({ httpStatus, error }: Attempt): string =>
  [httpStatus && `HTTP ${httpStatus}`, error && ERRORS[error]].filter(Boolean).join(" · ");

const hasSucceeded = ({ httpStatus, error }: Attempt) =>
  error === null && httpStatus !== null && httpStatus >= 200 && httpStatus < 300;

export interface Health {
  state: "unknown" | "healthy" | "failing";
  /** The first of the latest failures. */
  since: string | null;
  latest: Attempt | null;
  failures: number;
  /** When the next attempt is due. */
  nextAttemptAt: string | null;
}

/** Judges an endpoint by its latest attempts. @param deliveries newest first */
export function healthOf(deliveries: Judged[]): Health {
  const attempts = deliveries.flatMap(({ attempts }) => attempts).sort((one, other) => (one.at < other.at ? 1 : -1));
  const lastSuccess = attempts.findIndex(hasSucceeded);
  const failures = lastSuccess < 0 ? attempts.length : lastSuccess;
  const due = deliveries.flatMap(({ nextAttemptAt }) => nextAttemptAt ?? []).sort();
  const state = failures >= FAILING_ATTEMPTS ? "failing" : attempts.length === 0 ? "unknown" : "healthy";
  return {
    state,
    since: attempts[failures - 1]?.at ?? null,
    latest: attempts[0] ?? null,
    failures,
    nextAttemptAt: due[0] ?? null,
  };
}

/** The state of a webhook in one word, with a color. */
export function HealthBadge({ webhook, health }: { webhook: Webhook; health: Health | undefined }) {
  if (webhook.status !== "enabled") return <span class="badge">{REASONS[webhook.disabledReason ?? "requested"]}</span>;
  if (health?.state === "failing") return <span class="badge bad">Failing</span>;
  if (health?.state === "healthy") return <span class="badge good">Healthy</span>;
  return <span class="badge">Enabled</span>;
}

const BARS = 24;

/** Whether the last attempt failed, even if another one follows. */
const isFailing = ({ attempts }: Judged) => attempts.length > 0 && !hasSucceeded(attempts.at(-1) as Attempt);

/** The latest deliveries as bars, oldest first, with the failed ones in red. */
export function DeliveryBars({ deliveries }: { deliveries: Judged[] }) {
  const shown = deliveries.slice(0, BARS).reverse();
  const failed = shown.filter(isFailing).length;
  return (
    <svg class="delivery-bars" viewBox="0 0 96 20" role="img" aria-label={`${failed} of ${shown.length} failed`}>
      {shown.map((delivery, place) => (
        <rect
          key={place}
          data-status={isFailing(delivery) ? "failed" : delivery.status}
          x={(BARS - shown.length + place) * 4}
          y={isFailing(delivery) ? 0 : 4}
          width="3"
          height={isFailing(delivery) ? 20 : 16}
        />
      ))}
    </svg>
  );
}

/** When the next attempt is due, which may be overdue a little. */
export const NextAttempt = ({ at }: { at: string }) =>
  Date.parse(at) <= Date.now() ? <>soon</> : <Time at={at} isRelative />;

/** Since when an endpoint fails, and why. */
export const FailingSince = ({ health: { since, latest, failures, nextAttemptAt } }: { health: Health }) => (
  <p>
    <strong>
      Failing{since && " since "}
      {since && <Time at={since} />}.
    </strong>{" "}
    {latest && resultOf(latest)}. {failures} failed attempts in a row
    {nextAttemptAt && (
      <>
        , next <NextAttempt at={nextAttemptAt} />
      </>
    )}
    .
  </p>
);
