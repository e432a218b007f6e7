import { useEffect, useRef, useState } from "preact/hooks";
import { asSent } from "../../client/ids.ts";
import type { Delivery, RecordedEvent, Webhook } from "../../client/index.ts";
import { labelOf } from "../events/event-types.ts";
import { Subject, titleOf } from "../events/sentence.tsx";
import { ActionButton } from "../framework/action.tsx";
import { announce } from "../framework/announce.tsx";
import { open, TaskDialog } from "../framework/dialog.tsx";
import { isLive } from "../framework/live.ts";
import { href } from "../framework/router.ts";
import { can, client } from "../framework/session.ts";
import { reloadData, useList } from "../framework/store.ts";
import { useTask } from "../framework/task.ts";
import { Segments } from "../parts/choice.tsx";
import { Failure } from "../parts/failure.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { countOf, formatCount, localMinute } from "../parts/format.ts";
import { More } from "../parts/more.tsx";
import { Empty } from "../parts/page.tsx";
import { Time } from "../parts/values.tsx";
import {
  type Attempt,
  DayCounts,
  FailingSince,
  HealthBadge,
  hasSucceeded,
  NextAttempt,
  resultOf,
} from "./webhook-health.tsx";

const PAGE_DELIVERIES = 50;
const DAY_MILLISECONDS = 86_400_000;
/** The bounds of the poll delay while a delivery is pending. */
const MIN_POLL_MILLISECONDS = 2000;
const MAX_POLL_MILLISECONDS = 30_000;
const TABS = { all: "All", failing: "Failing", succeeded: "Delivered" };
type Tab = keyof typeof TABS;
const START_OF_LOG = new Date(0).toISOString();

function StatusBadge({ delivery: { status, attempts } }: { delivery: Delivery }) {
  if (status === "succeeded") return <span class="badge good">Delivered</span>;
  if (status === "failed") return <span class="badge bad">Failed</span>;
  const latest = attempts.at(-1);
  if (!latest || hasSucceeded(latest)) return <span class="badge busy">Waiting</span>;
  return <span class="badge bad">Failing</span>;
}

/** The time and the result of one attempt. */
export function AttemptFacts({ attempt, label }: { attempt: Attempt; label?: string }) {
  const { at, durationMilliseconds, responseBody } = attempt;
  return (
    <>
      <p>
        {label}{" "}
        {hasSucceeded(attempt) ? <span class="badge good">Succeeded</span> : <span class="badge bad">Failed</span>}{" "}
        <strong>{resultOf(attempt)}</strong>{" "}
        <span class="quiet">
          · {formatCount(durationMilliseconds)} ms · <Time at={at} />
        </span>
      </p>
      {responseBody && <pre class="json">{responseBody}</pre>}
    </>
  );
}

/** The request of a delivery. Signatures are not stored. */
function DeliveryRequest({ event, attempt }: { event: RecordedEvent; attempt: Attempt | undefined }) {
  const { _id: id, type, createdAt: timestamp, teamId, actor, subject, data } = event;
  const headers = {
    "Content-Type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": attempt ? Math.floor(Date.parse(attempt.at) / 1000) : "(time of the attempt)",
    "webhook-signature": "(not stored)",
  };
  return (
    <details key={id}>
      <summary>Request</summary>
      <pre class="json">
        {Object.entries(headers)
          .map(([name, value]) => `${name}: ${value}\n`)
          .join("")}
        {"\n"}
        {JSON.stringify({ id, type, timestamp, teamId, actor, subject, data: asSent(data) }, null, 2)}
      </pre>
    </details>
  );
}

/** The health of a webhook, and its delivery log, newest first: a list, and the delivery that was chosen from it. */
export function Deliveries({ webhook }: { webhook: Webhook }) {
  const { _id: id } = webhook;
  const [chosenTab, setTab] = useState<Tab | null>(null);
  const tab = chosenTab ?? (webhook.health === "failing" ? "failing" : "all");
  const filters = { limit: PAGE_DELIVERIES, ...(tab !== "all" && { status: tab }) };
  const deliveries = useList(
    ["deliveries", id, tab],
    (signal) => client.value.webhooks.deliveries(id, filters, { signal }),
    {
      of: ["webhook"],
      on: () => true,
      isPolled: true,
      rows: tab === "succeeded" ? PAGE_DELIVERIES : 0,
    },
  );
  const { items = [], isLoading, reload, more } = deliveries;
  /** The delivery that the user has chosen, as it was read last. It stays although it no longer matches the tab. */
  const [kept, setKept] = useState<Delivery | null>(null);
  const listed = items.find(({ _id }) => _id === kept?._id);
  useEffect(() => {
    if (listed) setKept(listed);
  }, [listed]);
  const failing = useList(
    ["deliveries", id, "failing"],
    (signal) => client.value.webhooks.deliveries(id, { limit: PAGE_DELIVERIES, status: "failing" }, { signal }),
    { of: ["webhook"], on: () => true, isPolled: true },
  );
  const failingCount = failing.items?.length ?? 0;
  const counted = failing.more ? `${failingCount}+` : failingCount;
  const next = items.flatMap(({ nextAttemptAt }) => nextAttemptAt ?? []).sort()[0];
  useEffect(() => {
    if (isLoading || !isLive.value || !next) return;
    const wait = Math.min(Math.max(Date.parse(next) - Date.now(), MIN_POLL_MILLISECONDS), MAX_POLL_MILLISECONDS);
    const timer = setTimeout(reload, wait);
    return () => clearTimeout(timer);
  }, [deliveries.items, isLoading, reload]);
  // Attempts are not events, so the record is read again with the log.
  const shownItems = useRef(deliveries.items);
  useEffect(() => {
    if (shownItems.current && deliveries.items !== shownItems.current) reloadData(["webhook", id]);
    shownItems.current = deliveries.items;
  }, [deliveries.items]);
  const chooseTab = (tab: Tab) => {
    setTab(tab);
    setKept(null);
  };
  const resendFailed = (
    <ActionButton
      action={{
        label: `Resend ${counted} that failed`,
        scope: "webhooks:write",
        run: () => replay(webhook, "failed", counted),
      }}
    />
  );
  const chosen = listed ?? kept ?? items[0];
  const isFailing = webhook.health === "failing";
  return (
    <>
      {isFailing && (
        <div class="failure" role="status">
          <FailingSince webhook={webhook} next={next} />
          {failingCount > 0 && resendFailed}
        </div>
      )}
      <section class="stack" aria-labelledby="deliveries">
        <header class="page-header">
          <h2 id="deliveries">Deliveries</h2>
          {!isFailing && <HealthBadge webhook={webhook} />}
          {!isFailing && failingCount > 0 && webhook.status === "enabled" && resendFailed}
        </header>
        <DayCounts webhook={webhook} />
        <Failure error={deliveries.error} onRetry={reload} />
        {tab === "all" && deliveries.items?.length === 0 ? (
          <Empty title="No deliveries yet">
            <p>Each event sent to this endpoint appears here with every attempt and response.</p>
          </Empty>
        ) : (
          <Segments
            class="start"
            label="Show"
            options={{ ...TABS, ...(failingCount > 0 && { failing: `${TABS.failing} ${counted}` }) }}
            chosen={tab}
            onChoose={chooseTab}
          />
        )}
        {tab !== "all" && deliveries.items?.length === 0 && (
          <p class="quiet">{more ? "No matches so far" : "No matching deliveries"}</p>
        )}
        {chosen && (
          <div class="panes">
            <ul class="card panes-list" aria-label="Deliveries" hidden={items.length === 0}>
              {items.map((delivery) => (
                <li key={delivery._id}>
                  <button
                    type="button"
                    aria-current={delivery === chosen}
                    onClick={() => {
                      setKept(delivery);
                      // The list no longer follows the health of the endpoint.
                      setTab(tab);
                      document.getElementById("delivery")?.scrollIntoView({ block: "nearest" });
                    }}
                  >
                    <Summary delivery={delivery} tab={tab} />
                  </button>
                </li>
              ))}
            </ul>
            <DeliveryDetails key={chosen._id} delivery={chosen} onChange={setKept} />
          </div>
        )}
        <More of={deliveries} />
      </section>
    </>
  );
}

const titleOfDelivery = ({ event, type }: Delivery) => (event ? titleOf(event) : labelOf(type));

/** One event in the list: its type, its resource and its result, unless the tab says it. */
function Summary({ delivery, tab }: { delivery: Delivery; tab: Tab }) {
  const { event, status, attempts, nextAttemptAt } = delivery;
  const latest = attempts.at(-1);
  return (
    <>
      <span class="panes-title">{titleOfDelivery(delivery)}</span>
      {(tab === "all" || status === "failed") && <StatusBadge delivery={delivery} />}
      <span class="quiet">
        {event && (
          <>
            <Subject event={event} isPlain /> · <Time at={event.createdAt} isRelative />
          </>
        )}
      </span>
      <span class="quiet">
        {latest ? `${resultOf(latest)} · ${countOf(attempts.length, "attempt")}` : "Not sent yet"}
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

/** One delivery: the responses, the latest first, and the request folded. */
function DeliveryDetails({ delivery, onChange }: { delivery: Delivery; onChange: (delivery: Delivery) => void }) {
  const { _id, eventId, event, attempts } = delivery;
  const wasSent = attempts.length > 0;
  const { run, isRunning, error } = useTask();
  /** The attempt of the resend; null if it takes longer than the service waits. */
  const [attempt, setAttempt] = useState<Attempt | null>();
  const resend = () =>
    run(async () => {
      setAttempt(undefined);
      // From now on, it stays in view.
      onChange(delivery);
      const { attempt, ...resent } = await client.value.webhooks.redeliver(_id);
      onChange(resent);
      setAttempt(attempt);
    });
  return (
    <section id="delivery" class="card stack" aria-label="Delivery">
      <header class="page-header">
        <h3>{titleOfDelivery(delivery)}</h3>
        {can("webhooks:write") && (
          <button
            type="button"
            class={`button ${wasSent ? "primary" : ""}`}
            aria-disabled={isRunning}
            onClick={() => void resend()}
          >
            {isRunning ? "Sending…" : wasSent ? "Resend" : "Send now"}
          </button>
        )}
      </header>
      <div role="status" class="result">
        {attempt === null && "No response yet. The result follows."}
        {attempt &&
          `${hasSucceeded(attempt) ? "Delivered" : "Failed"} · ${resultOf(attempt)} · ${formatCount(attempt.durationMilliseconds)} ms`}
      </div>
      <Failure error={error} />
      {!wasSent && <p class="quiet">Not sent yet</p>}
      {[...attempts].reverse().map((attempt) => (
        <div key={attempt.at} class="stack">
          <AttemptFacts attempt={attempt} />
        </div>
      ))}
      {event && (
        <>
          <p>
            <span class="quiet">
              <Time at={event.createdAt} /> ·
            </span>{" "}
            <Subject event={event} />
          </p>
          <DeliveryRequest event={event} attempt={attempts.at(-1)} />
        </>
      )}
      <p class="quiet">
        Event ID:{" "}
        <a href={href(`/events/${eventId}`)}>
          <code>{eventId}</code>
        </a>
      </p>
    </section>
  );
}

/** Resends the failed events, or all since a moment. */
type ReplayKind = "failed" | "since";

const dayAgo = () => new Date(Date.now() - DAY_MILLISECONDS).toISOString();

export const replay = (webhook: Webhook, kind: ReplayKind, failed: number | string = "everything") =>
  open((close) => <Replay webhook={webhook} kind={kind} failed={failed} onClose={() => close()} />);

interface ReplayProps {
  webhook: Webhook;
  kind: ReplayKind;
  /** How many failed, as the page has counted them. */
  failed: number | string;
  onClose: () => void;
}

/** Resends events, in as many requests as the API needs. After a failure it continues. */
function Replay({ webhook: { _id, failingSince }, kind, failed, onClose }: ReplayProps) {
  /** The last event that was resent, or the moment to begin at. Null until the form says it. */
  const [{ after, count }, setProgress] = useState({ after: kind === "failed" ? START_OF_LOG : null, count: 0 });
  const replay = async (form: HTMLFormElement) => {
    const failedOnly = kind === "failed" || new FormData(form).has("failedOnly");
    let sent = count;
    for (let from = after ?? new Date(textOf(form, "after")).toISOString(); ; ) {
      const step = await client.value.webhooks.replay(_id, { after: from, failedOnly });
      sent += step.deliveries;
      if (step.next === null) break;
      from = step.next;
      setProgress({ after: from, count: sent });
    }
    onClose();
    announce(`${countOf(sent, "event")} queued for resending`);
  };
  const [title, action] = kind === "failed" ? [`Resend ${failed} that failed?`, "Resend"] : ["Replay events", "Replay"];
  return (
    <TaskDialog title={title} action={action} onRun={replay} onClose={onClose}>
      {after === null ? (
        <TextField
          label="Events since"
          name="after"
          type="datetime-local"
          required
          defaultValue={localMinute(failingSince ?? dayAgo())}
        />
      ) : null}
      <p>Events are resent with their original message IDs.</p>
      {kind === "since" && (
        <label>
          <input type="checkbox" name="failedOnly" defaultChecked /> Failed deliveries only
        </label>
      )}
      {count > 0 && <p role="status">{countOf(count, "event")} so far</p>}
    </TaskDialog>
  );
}
