import type { Delivery, Webhook } from "../../client/index.ts";
import { countOf, formatCount, formatPercent } from "../parts/format.ts";
import { Time } from "../parts/values.tsx";

/* Whether an endpoint works, as its record says. */

export type Attempt = Delivery["attempts"][number];

const REASONS = {
  requested: "Disabled",
  gone: "Disabled: endpoint returned 410 Gone",
  failing: "Disabled: failing for 5 days",
  creator_deleted: "Disabled: the user who set it up was deleted",
  creator_demoted: "Disabled: the user who set it up is a contributor now",
};

const ERRORS: Record<NonNullable<Attempt["error"]>, string> = {
  timeout: "No response within 15 seconds",
  connection_failed: "Connection failed",
  address_refused: "URL not allowed",
  secret_unreadable: "The signing secret can't be decrypted",
  webhook_disabled: "Not sent because the webhook was disabled",
};

/** The result of an attempt: its status code, or why there is none. */
export const resultOf = ({ httpStatus, error }: Attempt): string =>
  [httpStatus && `HTTP ${httpStatus}`, error && ERRORS[error]].filter(Boolean).join(" · ");

export const hasSucceeded = ({ httpStatus, error }: Attempt): boolean =>
  error === null && Math.floor((httpStatus ?? 0) / 100) === 2;

const attemptsOf = ({ succeeded, failed }: { succeeded: number; failed: number }) => succeeded + failed;

/** The state of a webhook in one word, with a color. */
export function HealthBadge({ webhook: { health, disabledReason, lastDay, lastResult } }: { webhook: Webhook }) {
  if (health === "disabled") return <span class="badge">{REASONS[disabledReason ?? "requested"]}</span>;
  if (health === "failing") return <span class="badge bad">Failing</span>;
  if (lastResult && !hasSucceeded(lastResult)) return <span class="badge busy">Last attempt failed</span>;
  // A webhook that nothing was sent to is healthy, too.
  return attemptsOf(lastDay) > 0 ? <span class="badge good">Healthy</span> : <span class="badge">Enabled</span>;
}

const HOURS = 24;
const HOUR_MILLISECONDS = 3_600_000;
const STEP = 4;
const HEIGHT = 20;

/** The attempts of the last day: a bar for each hour with the failed ones in red, and how many failed. */
export function DayBars({ webhook: { lastDay } }: { webhook: Webhook }) {
  const { failed, hours } = lastDay;
  const attempts = countOf(attemptsOf(lastDay), "attempt");
  const most = Math.max(...hours.map(attemptsOf));
  const first = Math.floor(Date.now() / HOUR_MILLISECONDS) - HOURS + 1;
  return (
    <div class="two-lines">
      <svg class="delivery-bars wide-only" viewBox={`0 0 ${HOURS * STEP} ${HEIGHT}`} aria-hidden="true">
        {Array.from({ length: HOURS }, (_, hour) => (
          <rect
            key={hour}
            style={{ fill: "var(--line-strong)" }}
            x={hour * STEP}
            y={HEIGHT - 1}
            width={STEP - 1}
            height={1}
          />
        ))}
        {hours.map((hour) => {
          const x = (Date.parse(hour.startsAt) / HOUR_MILLISECONDS - first) * STEP;
          const bar = (count: number, status: string) => {
            const height = (count * HEIGHT) / most;
            return <rect data-status={status} x={x} y={HEIGHT - height} width={STEP - 1} height={height} />;
          };
          return (
            <g key={hour.startsAt}>
              {bar(attemptsOf(hour), "succeeded")}
              {bar(hour.failed, "failed")}
            </g>
          );
        })}
      </svg>
      <span class="quiet">
        {failed > 0 ? `${formatCount(failed)} of ${attempts} failed` : `${attempts}, none failed`}
      </span>
    </div>
  );
}

/** How many attempts of the last day succeeded. Nothing if there were none. */
export function DayCounts({ webhook: { lastDay } }: { webhook: Webhook }) {
  const all = attemptsOf(lastDay);
  if (all === 0) return null;
  return (
    <p class="quiet">
      Last day: {formatPercent(lastDay.succeeded, all)} of {countOf(all, "attempt")} succeeded
    </p>
  );
}

/** When the next attempt is due, which may be overdue a little. */
export const NextAttempt = ({ at }: { at: string }) =>
  Date.parse(at) <= Date.now() ? <>soon</> : <Time at={at} isRelative />;

/** Since when an endpoint fails, with its latest result and the time of the next attempt. */
export function FailingSince({ webhook, next }: { webhook: Webhook; next: string | undefined }) {
  const { failingSince, lastResult } = webhook;
  return (
    <p>
      <strong>
        Failing{failingSince && " since "}
        {failingSince && <Time at={failingSince} />}.
      </strong>{" "}
      {lastResult && `${resultOf(lastResult)}. `}
      {next && (
        <>
          Next attempt <NextAttempt at={next} />.
        </>
      )}
    </p>
  );
}
