import { useEffect, useRef, useState } from "preact/hooks";
import type { Delivery, Webhook } from "../../client/stowage.ts";
import { isLive } from "../live.ts";
import { announce } from "../parts/announce.tsx";
import { TaskDialog } from "../parts/dialog.tsx";
import { EVENT_LABELS } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { countOf, formatCount, localMinute } from "../parts/format.ts";
import { More } from "../parts/more.tsx";
import { Empty } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { can, client } from "../session.ts";
import { useData, useList } from "../store.ts";
import { type Attempt, DayCounts, FailingSince, HealthBadge, NextAttempt, resultOf } from "./webhook-health.tsx";

const PAGE_DELIVERIES = 50;
const DAY_MILLISECONDS = 86_400_000;
/** The bounds of the poll delay while a delivery is pending. */
const MIN_POLL_MILLISECONDS = 2000;
const MAX_POLL_MILLISECONDS = 30_000;
const STATUS_LABELS = { pending: "Retrying", succeeded: "Succeeded", failed: "Failed" };
const STATUS_CLASSES = { pending: "busy", succeeded: "good", failed: "bad" };
type Shown = "all" | "failed" | "pending";
const TABS: Record<Shown, string> = { all: "All", failed: "Failed", pending: "Retrying" };

const isUntried = ({ status, attempts }: Delivery) => status === "pending" && attempts.length === 0;
const StatusBadge = ({ delivery }: { delivery: Delivery }) => (
  <span class={`badge ${STATUS_CLASSES[delivery.status]}`}>
    {isUntried(delivery) ? "Queued" : STATUS_LABELS[delivery.status]}
  </span>
);

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

/** The event of a delivery: its resource, and on demand the request. Signatures are not stored. */
function DeliveryRequest({ eventId, attempt }: { eventId: string; attempt: Attempt | undefined }) {
  const loaded = useData(`event ${eventId}`, (signal) => client.value.events.get(eventId, {}, { signal }));
  const { value: event, error, reload } = loaded;
  if (!event) return <Failure error={error} onRetry={reload} />;
  const { _id: id, type, createdAt: timestamp, teamId, actor, subject, data } = event;
  const headers = {
    "Content-Type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": attempt ? Math.floor(Date.parse(attempt.at) / 1000) : "(time of the attempt)",
    "webhook-signature": "(not stored)",
  };
  return (
    <details>
      <summary>Request</summary>
      <pre class="json">
        {Object.entries(headers)
          .map(([name, value]) => `${name}: ${value}\n`)
          .join("")}
        {"\n"}
        {JSON.stringify({ id, type, timestamp, teamId, actor, subject, data }, null, 2)}
      </pre>
    </details>
  );
}

/** The health of a webhook, and its delivery log, newest first: a list, and the delivery that was chosen from it. */
export function Deliveries({ webhook, onChanged }: { webhook: Webhook; onChanged: () => void }) {
  const { _id: id } = webhook;
  const deliveries = useList(
    `deliveries ${id}`,
    (signal) => client.value.webhooks.deliveries(id, { limit: PAGE_DELIVERIES }, { signal }),
    { on: () => true },
  );
  const { items = [], isLoading, reload } = deliveries;
  const [tab, setTab] = useState<Shown>("all");
  const [chosenId, setChosenId] = useState<string | null>(null);
  /** The event or the moment that the replay dialog starts after; undefined if the dialog is closed. */
  const [replayAfter, setReplayAfter] = useState<ReplayStart>();
  const { run, isRunning, error } = useTask();
  useEffect(() => {
    const pending = items.filter(({ status }) => status === "pending");
    if (isLoading || !isLive.value || pending.length === 0) return;
    const next = Math.min(...pending.map(({ nextAttemptAt }) => Date.parse(nextAttemptAt ?? "") || 0)) - Date.now();
    const wait = Math.min(Math.max(next, MIN_POLL_MILLISECONDS), MAX_POLL_MILLISECONDS);
    const timer = setTimeout(reload, wait);
    return () => clearTimeout(timer);
  }, [deliveries.items, isLoading, reload]);
  // Attempts are not events, so the record is read again with the log.
  const shownItems = useRef(deliveries.items);
  useEffect(() => {
    if (shownItems.current && deliveries.items !== shownItems.current) onChanged();
    shownItems.current = deliveries.items;
  }, [deliveries.items]);
  const replayFrom = () => setReplayAfter({ moment: webhook.failingSince ?? dayAgo() });
  const due = items.find(({ status, nextAttemptAt }) => status === "pending" && nextAttemptAt);
  const resend = ({ _id }: Delivery) =>
    run(async () => {
      await client.value.webhooks.redeliver(_id);
      announce("Resend queued");
      reload();
    });
  const shown = items.filter(({ status }) => tab === "all" || status === tab);
  const chosen = shown.find(({ _id }) => _id === chosenId) ?? shown[0];
  const canResend = can("webhooks:write");
  return (
    <>
      {webhook.health === "failing" && (
        <div class="failure" role="status">
          <FailingSince webhook={webhook} deliveries={items} />
          {canResend && (
            <div class="actions">
              {due && (
                <button type="button" class="button" aria-disabled={isRunning} onClick={() => resend(due)}>
                  Resend now
                </button>
              )}
              <button type="button" class="button" onClick={replayFrom}>
                Replay failed events
              </button>
            </div>
          )}
        </div>
      )}
      <section class="stack" aria-labelledby="deliveries">
        <header class="page-header">
          <h2 id="deliveries">Deliveries</h2>
          <HealthBadge webhook={webhook} />
          <div class="actions">
            {canResend && (
              <button type="button" class="button" onClick={replayFrom}>
                Replay events
              </button>
            )}
          </div>
        </header>
        <DayCounts webhook={webhook} />
        <Failure error={deliveries.error} onRetry={reload} />
        <Failure error={error} />
        {deliveries.items?.length === 0 && (
          <Empty title="No deliveries yet">
            <p>Each event sent to this endpoint appears here with every attempt and response.</p>
          </Empty>
        )}
        {items.length > 0 && (
          <>
            <fieldset class="segments start">
              <legend class="visually-hidden">Show</legend>
              {Object.entries(TABS).map(([value, label]) => (
                <label key={value}>
                  <input
                    type="radio"
                    name="deliveries"
                    checked={tab === value}
                    onChange={() => setTab(value as Shown)}
                  />
                  {label}
                </label>
              ))}
            </fieldset>
            <div class="panes">
              <ul class="card panes-list" aria-label="Deliveries">
                {shown.map((delivery) => (
                  <li key={delivery._id}>
                    <button
                      type="button"
                      aria-current={delivery === chosen}
                      onClick={() => {
                        setChosenId(delivery._id);
                        document.getElementById("delivery")?.scrollIntoView({ block: "nearest" });
                      }}
                    >
                      <Summary delivery={delivery} />
                    </button>
                  </li>
                ))}
                {shown.length === 0 && <li class="quiet">None of the latest deliveries</li>}
              </ul>
              {chosen && (
                <DeliveryDetails
                  delivery={chosen}
                  isRunning={isRunning}
                  onResend={canResend ? () => resend(chosen) : undefined}
                  onReplay={(eventId) => setReplayAfter({ eventId })}
                />
              )}
            </div>
          </>
        )}
        <More of={deliveries} />
        {replayAfter !== undefined && (
          <Replay id={id} start={replayAfter} onReplayed={reload} onClose={() => setReplayAfter(undefined)} />
        )}
      </section>
    </>
  );
}

function Summary({ delivery }: { delivery: Delivery }) {
  const { type, attempts, nextAttemptAt } = delivery;
  const latest = attempts.at(-1);
  return (
    <>
      <span class="panes-title">{EVENT_LABELS[type] ?? type}</span>
      <StatusBadge delivery={delivery} />
      <span class="quiet">
        {latest ? (
          <>
            {resultOf(latest)} · {countOf(attempts.length, "attempt")} · <Time at={latest.at} isRelative />
          </>
        ) : (
          "Not sent yet"
        )}
        {latest && nextAttemptAt && (
          <>
            {" "}
            · next <NextAttempt at={nextAttemptAt} />
          </>
        )}
      </span>
    </>
  );
}

interface DetailsProps {
  delivery: Delivery;
  isRunning: boolean;
  onResend: (() => void) | undefined;
  onReplay: (eventId: string) => void;
}

/** One delivery: what can be done, then the responses, and the request folded. */
function DeliveryDetails({ delivery, isRunning, onResend, onReplay }: DetailsProps) {
  const { eventId, type, attempts } = delivery;
  return (
    <section id="delivery" class="card stack" aria-label="Delivery">
      <header class="page-header">
        <h3>{EVENT_LABELS[type] ?? type}</h3>
        {onResend && (
          <div class="actions">
            <button type="button" class="button" onClick={() => onReplay(eventId)}>
              Replay from here
            </button>
            <button type="button" class="button primary" aria-disabled={isRunning} onClick={onResend}>
              Resend
            </button>
          </div>
        )}
      </header>
      {[...attempts].reverse().map((attempt) => (
        <div key={attempt.at} class="stack">
          <AttemptFacts attempt={attempt} />
        </div>
      ))}
      {can("events:read") && <DeliveryRequest key={eventId} eventId={eventId} attempt={attempts.at(-1)} />}
      <p class="quiet">
        Event ID:{" "}
        <a href={href(`/events/${eventId}`)}>
          <code>{eventId}</code>
        </a>
      </p>
    </section>
  );
}

type ReplayStart = { eventId: string } | { moment: string };

const dayAgo = () => new Date(Date.now() - DAY_MILLISECONDS).toISOString();

interface ReplayProps {
  id: string;
  start: ReplayStart;
  onReplayed: () => void;
  onClose: () => void;
}

/** Resends the events after one of them or a moment, in as many requests as the API needs. After a failure it continues. */
function Replay({ id, start, onReplayed, onClose }: ReplayProps) {
  const startId = "eventId" in start ? start.eventId : null;
  /** The last event that was resent. Null at the start. */
  const [{ after, count }, setProgress] = useState({ after: startId, count: 0 });
  const replay = async (form: HTMLFormElement) => {
    const failedOnly = new FormData(form).has("failedOnly");
    let sent = count;
    for (let from = after ?? new Date(textOf(form, "after")).toISOString(); ; ) {
      const step = await client.value.webhooks.replay(id, { after: from, failedOnly });
      sent += step.deliveries;
      if (step.next === null) break;
      from = step.next;
      setProgress({ after: from, count: sent });
    }
    announce(`${countOf(sent, "event")} queued for resending`);
    onReplayed();
    onClose();
  };
  return (
    <TaskDialog title="Replay events" action="Replay" onRun={replay} onClose={onClose}>
      {"moment" in start && after === null ? (
        <TextField
          label="Events since"
          name="after"
          type="datetime-local"
          required
          defaultValue={localMinute(start.moment)}
          hint="They are resent with their original message IDs."
        />
      ) : (
        <p>
          The events after <code>{after}</code> are resent with their original message IDs.
        </p>
      )}
      <label>
        <input type="checkbox" name="failedOnly" defaultChecked /> Failed deliveries only
      </label>
      {count > 0 && <p role="status">{countOf(count, "event")} so far</p>}
    </TaskDialog>
  );
}
