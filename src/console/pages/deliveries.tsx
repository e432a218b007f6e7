import { useEffect, useState } from "preact/hooks";
import type { Delivery } from "../../client/stowage.ts";
import { isLive } from "../live.ts";
import { announce } from "../parts/announce.tsx";
import { TaskDialog } from "../parts/dialog.tsx";
import { EVENT_LABELS } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { countOf, formatCount, formatPercent } from "../parts/format.ts";
import { useEvents, useListing, useLoaded } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { can, client } from "../session.ts";

export type Attempt = Delivery["attempts"][number];

const PAGE_DELIVERIES = 50;
/** The bounds of the poll delay while a delivery is pending. */
const MIN_POLL_MILLISECONDS = 2000;
const MAX_POLL_MILLISECONDS = 30_000;
const ERRORS: Record<NonNullable<Attempt["error"]>, string> = {
  timeout: "No response within 15 seconds",
  connection_failed: "Connection failed",
  address_refused: "URL not allowed",
  secret_unreadable: "The signing secret can't be decrypted",
  webhook_disabled: "Not sent because the webhook was disabled",
  event_purged: "Not sent because the event has expired",
};
const STATUSES = {
  pending: <span class="badge busy">Pending</span>,
  succeeded: <span class="badge good">Succeeded</span>,
  failed: <span class="badge bad">Failed</span>,
};

const resultOf = ({ httpStatus, error }: Attempt) => [httpStatus, error && ERRORS[error]].filter(Boolean).join(" · ");

/** The time and the result of one attempt. */
export function AttemptFacts({ attempt }: { attempt: Attempt }) {
  const { at, durationMilliseconds, responseBody } = attempt;
  return (
    <>
      <p>
        <strong>{resultOf(attempt)}</strong>{" "}
        <span class="quiet">
          · {formatCount(durationMilliseconds)} ms · <Time at={at} />
        </span>
      </p>
      {responseBody && <pre class="json">{responseBody}</pre>}
    </>
  );
}

/** How many of the loaded deliveries that have ended succeeded. */
function SuccessRate({ deliveries }: { deliveries: Delivery[] }) {
  const ended = deliveries.filter(({ status }) => status !== "pending");
  if (ended.length === 0) return null;
  const succeeded = ended.filter(({ status }) => status === "succeeded").length;
  return (
    <p class="quiet">
      Success rate: {formatPercent(succeeded, ended.length)} of the latest{" "}
      {countOf(ended.length, "delivery", "deliveries")}
    </p>
  );
}

/** The request of a delivery, from its event. Signatures are not stored. */
function DeliveryRequest({ eventId, attempt }: { eventId: string; attempt: Attempt | undefined }) {
  const {
    value: event,
    error,
    reload,
  } = useLoaded((signal) => client.value.events.get(eventId, { signal }), [eventId]);
  if (!event) return <Failure error={error} onRetry={reload} />;
  const { _id: id, type, createdAt: timestamp, teamId, actor, subject, data } = event;
  const headers = {
    "Content-Type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": attempt ? Math.floor(Date.parse(attempt.at) / 1000) : "(time of the attempt)",
    "webhook-signature": "(not stored)",
  };
  return (
    <>
      <h3>Request</h3>
      <pre class="json">
        {Object.entries(headers)
          .map(([name, value]) => `${name}: ${value}\n`)
          .join("")}
        {"\n"}
        {JSON.stringify({ id, type, timestamp, teamId, actor, subject, data }, null, 2)}
      </pre>
    </>
  );
}

/** The delivery log of a webhook, newest first. */
export function Deliveries({ id }: { id: string }) {
  const deliveries = useListing(
    (signal) => client.value.webhooks.deliveries(id, { limit: PAGE_DELIVERIES, signal }),
    [id],
  );
  const { items, isLoading, reload } = deliveries;
  /** The event that the replay dialog starts after, possibly empty; undefined if the dialog is closed. */
  const [replayAfter, setReplayAfter] = useState<string>();
  useEvents(() => true, reload);
  useEffect(() => {
    const pending = items?.filter(({ status }) => status === "pending") ?? [];
    if (isLoading || !isLive.value || pending.length === 0) return;
    const next = Math.min(...pending.map(({ nextAttemptAt }) => Date.parse(nextAttemptAt ?? "") || 0)) - Date.now();
    const wait = Math.min(Math.max(next, MIN_POLL_MILLISECONDS), MAX_POLL_MILLISECONDS);
    const timer = setTimeout(reload, wait);
    return () => clearTimeout(timer);
  }, [items, isLoading, reload]);
  return (
    <section class="stack" aria-labelledby="deliveries">
      <header class="page-header">
        <h2 id="deliveries">Deliveries</h2>
        {can("webhooks:write") && (
          <button type="button" class="button" onClick={() => setReplayAfter("")}>
            Replay events
          </button>
        )}
      </header>
      <SuccessRate deliveries={items ?? []} />
      <Failure error={deliveries.error} onRetry={reload} />
      {items?.length === 0 && (
        <Empty title="No deliveries yet">
          <p>Each event sent to this endpoint appears here with every attempt and response.</p>
        </Empty>
      )}
      {items && items.length > 0 && (
        <ul class="card rows">
          {items.map((delivery) => (
            <Row key={delivery._id} delivery={delivery} onSent={reload} onReplay={setReplayAfter} />
          ))}
        </ul>
      )}
      <More of={deliveries} />
      {replayAfter !== undefined && (
        <Replay id={id} since={replayAfter} onReplayed={reload} onClose={() => setReplayAfter(undefined)} />
      )}
    </section>
  );
}

interface RowProps {
  delivery: Delivery;
  onSent: () => void;
  onReplay: (eventId: string) => void;
}

function Row({ delivery, onSent, onReplay }: RowProps) {
  const { run, isRunning, error } = useTask();
  const [isOpen, setOpen] = useState(false);
  const { _id, eventId, type, status, attempts, nextAttemptAt } = delivery;
  const latest = attempts.at(-1);
  const redeliver = () =>
    run(async () => {
      await client.value.webhooks.redeliver(_id);
      announce("Resend queued");
      onSent();
    });
  return (
    <li>
      <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>
          {EVENT_LABELS[type] ?? type} {STATUSES[status]}{" "}
          <span class="quiet">
            {countOf(attempts.length, "attempt")}
            {latest && (
              <>
                , {resultOf(latest)} <Time at={latest.at} isRelative />
              </>
            )}
            {latest && nextAttemptAt && (
              <>
                {" "}
                · next <Time at={nextAttemptAt} isRelative />
              </>
            )}
          </span>
        </summary>
        <div class="stack">
          {attempts.map((attempt) => (
            <div key={attempt.at} class="stack">
              <AttemptFacts attempt={attempt} />
            </div>
          ))}
          {isOpen && can("events:read") && <DeliveryRequest eventId={eventId} attempt={attempts.at(-1)} />}
          <p class="quiet">
            Event ID:{" "}
            <a href={href(`/events/${eventId}`)}>
              <code>{eventId}</code>
            </a>
          </p>
          <Failure error={error} />
          {can("webhooks:write") && (
            <div class="actions">
              <button type="button" class="button small" aria-disabled={isRunning} onClick={redeliver}>
                Resend
              </button>
              <button type="button" class="button small" onClick={() => onReplay(eventId)}>
                Replay from here
              </button>
            </div>
          )}
        </div>
      </details>
    </li>
  );
}

interface ReplayProps {
  id: string;
  since: string;
  onReplayed: () => void;
  onClose: () => void;
}

/** Resends the events after a given one, in as many requests as the API needs. After a failure it continues from there. */
function Replay({ id, since, onReplayed, onClose }: ReplayProps) {
  const [{ after, count }, setProgress] = useState({ after: since, count: 0 });
  const replay = async (form: HTMLFormElement) => {
    const failedOnly = new FormData(form).has("failedOnly");
    let sent = count;
    for (let from: string | null = textOf(form, "after"); from !== null; ) {
      const step = await client.value.webhooks.replay(id, { after: from, failedOnly });
      sent += step.deliveries;
      from = step.next;
      if (from !== null) setProgress({ after: from, count: sent });
    }
    announce(`${countOf(sent, "event")} queued for resending`);
    onReplayed();
    onClose();
  };
  return (
    <TaskDialog title="Replay events" action="Replay" onRun={replay} onClose={onClose}>
      <TextField
        key={after}
        label="Starting after event"
        name="after"
        required
        spellcheck={false}
        defaultValue={after}
        hint="Paste an event ID. Later events are resent with their original message IDs."
      />
      <label>
        <input type="checkbox" name="failedOnly" /> Failed deliveries only
      </label>
      {count > 0 && <p role="status">{countOf(count, "event")} so far</p>}
    </TaskDialog>
  );
}
