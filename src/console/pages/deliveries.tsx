import { useEffect, useState } from "preact/hooks";
import type { Delivery } from "../../client/stowage.ts";
import { isLive, onEvent } from "../live.ts";
import { announce } from "../parts/announce.tsx";
import { TaskDialog } from "../parts/dialog.tsx";
import { EVENT_WORDS } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { formatCount, Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { client } from "../session.ts";

export type Attempt = Delivery["attempts"][number];

const PAGE_DELIVERIES = 50;
/** How soon a delivery that is pending is looked at again, and how late. */
const MIN_LOOK_MILLISECONDS = 2000;
const MAX_LOOK_MILLISECONDS = 30_000;
const ERRORS: Record<NonNullable<Attempt["error"]>, string> = {
  timeout: "No answer within 15 seconds",
  connection_failed: "The connection failed",
  address_refused: "The address is not allowed",
  secret_unreadable: "The secret can't be read",
  webhook_disabled: "Not sent: the webhook was disabled",
  event_purged: "Not sent: the event is no longer kept",
};
const STATUSES = {
  pending: <span class="badge busy">Pending</span>,
  succeeded: <span class="badge good">Succeeded</span>,
  failed: <span class="badge bad">Failed</span>,
};

/** One try, and what came of it. */
export function AttemptFacts({ attempt }: { attempt: Attempt }) {
  const { at, httpStatus, error, durationMilliseconds, responseBody } = attempt;
  const result = [httpStatus && `Answered ${httpStatus}`, error && ERRORS[error]].filter(Boolean).join(": ");
  return (
    <>
      <p>
        <strong>{result}</strong>{" "}
        <span class="quiet">
          after {formatCount(durationMilliseconds)} ms, <Time at={at} />
        </span>
      </p>
      {responseBody && <pre class="json">{responseBody}</pre>}
    </>
  );
}

/** The log of what was sent to a webhook, newest first. */
export function Deliveries({ id }: { id: string }) {
  const deliveries = useListing(
    (signal) => client.value.webhooks.deliveries(id, { limit: PAGE_DELIVERIES, signal }),
    [id],
  );
  const { items, isLoading, reload } = deliveries;
  /** The event that the dialog replays after, as far as it is known; undefined while there is no dialog. */
  const [replayed, setReplayed] = useState<string>();
  useEffect(() => onEvent(reload), [reload]);
  useEffect(() => {
    const pending = items?.filter(({ status }) => status === "pending") ?? [];
    if (isLoading || !isLive.value || pending.length === 0) return;
    const next = Math.min(...pending.map(({ nextAttemptAt }) => Date.parse(nextAttemptAt ?? "") || 0)) - Date.now();
    const wait = Math.min(Math.max(next, MIN_LOOK_MILLISECONDS), MAX_LOOK_MILLISECONDS);
    const timer = setTimeout(reload, wait);
    return () => clearTimeout(timer);
  }, [items, isLoading, reload]);
  return (
    <section class="stack" aria-labelledby="deliveries">
      <header class="page-header">
        <h2 id="deliveries">Deliveries</h2>
        <button type="button" class="button" onClick={() => setReplayed("")}>
          Replay
        </button>
      </header>
      <Failure error={deliveries.error} onRetry={reload} />
      {items?.length === 0 && (
        <Empty title="Nothing was sent yet">
          <p>Each event that this webhook is told of appears here, with every try and its answer.</p>
        </Empty>
      )}
      {items && items.length > 0 && (
        <ul class="cards">
          {items.map((delivery) => (
            <Row key={delivery._id} delivery={delivery} onSent={reload} onReplay={setReplayed} />
          ))}
        </ul>
      )}
      <More of={deliveries} />
      {replayed !== undefined && (
        <Replay id={id} since={replayed} onReplayed={reload} onClose={() => setReplayed(undefined)} />
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
  const { _id, eventId, type, status, attempts, nextAttemptAt } = delivery;
  const redeliver = () =>
    run(async () => {
      await client.value.webhooks.redeliver(_id);
      announce("It is being sent again.");
      onSent();
    });
  return (
    <li class="card">
      <details>
        <summary>
          {EVENT_WORDS[type] ?? type} {STATUSES[status]}{" "}
          <span class="quiet">
            {attempts.length === 1 ? "1 try" : `${attempts.length} tries`}
            {nextAttemptAt && attempts.length > 0 && (
              <>
                , next <Time at={nextAttemptAt} />
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
          <p class="quiet">
            Event{" "}
            <a href={href(`/events/${eventId}`)}>
              <code>{eventId}</code>
            </a>
          </p>
          <Failure error={error} />
          <div class="actions">
            <button type="button" class="button small" aria-disabled={isRunning} onClick={redeliver}>
              Send again
            </button>
            <button type="button" class="button small" onClick={() => onReplay(eventId)}>
              Replay what came after
            </button>
          </div>
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

/** Sends again what happened since an event, in as many steps as the service takes. One that fails is gone on from. */
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
    announce(sent === 1 ? "1 delivery is being sent again." : `${formatCount(sent)} deliveries are being sent again.`);
    onReplayed();
    onClose();
  };
  return (
    <TaskDialog title="Send again what happened" action="Send again" onRun={replay} onClose={onClose}>
      <TextField
        key={after}
        label="After the event"
        name="after"
        required
        spellcheck={false}
        defaultValue={after}
        hint="Its id, from the list of events. What came after it is sent, under the same message ids as before."
      />
      <label>
        <input type="checkbox" name="failedOnly" /> Only what failed
      </label>
      {count > 0 && <p role="status">{formatCount(count)} so far.</p>}
    </TaskDialog>
  );
}
