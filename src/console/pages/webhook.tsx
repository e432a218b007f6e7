import { useEffect, useState } from "preact/hooks";
import type { Delivery, Webhook as StoredWebhook } from "../../client/stowage.ts";
import { onEvent } from "../live.ts";
import { announce } from "../parts/announce.tsx";
import { askFirst, Dialog } from "../parts/dialog.tsx";
import { EVENT_WORDS } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { onSubmit, TextField, textOf } from "../parts/form.tsx";
import { useListing, useLoaded } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { useTask } from "../parts/task.ts";
import { Time } from "../parts/values.tsx";
import { WebhookForm } from "../parts/webhook-form.tsx";
import { href, navigate } from "../router.ts";
import { client } from "../session.ts";
import { WebhookStatus } from "./webhooks.tsx";

type Attempt = Delivery["attempts"][number];

const LOOK_MILLISECONDS = 3000;
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

/** One webhook: what it is, what was sent to it, and all that can be done with it. */
export function Webhook({ id }: { id: string }) {
  const { value: webhook, error, reload } = useLoaded((signal) => client.value.webhooks.get(id, { signal }), [id]);
  const [secret, setSecret] = useState<string | null>(null);
  useEffect(() => onEvent(({ subject }) => subject.id === id && reload()), [id, reload]);
  if (!webhook) {
    return (
      <Page title="Webhook">
        <Failure error={error} onRetry={reload} />
        <More of={{ items: undefined, isLoading: error === null }} />
      </Page>
    );
  }
  return (
    <Page title={webhook.url} actions={<WebhookStatus webhook={webhook} />}>
      <Actions webhook={webhook} onChanged={reload} onSecret={setSecret} />
      <details class="card">
        <summary>Change address, events or description</summary>
        <WebhookForm
          key={webhook.__v}
          webhook={webhook}
          action="Save"
          onSave={async (changes) => {
            await client.value.webhooks.update(id, changes);
            announce("Saved.");
            reload();
          }}
        />
      </details>
      <Deliveries id={id} />
      {secret && (
        <Secret title="New secret" what="secret" secret={secret} onClose={() => setSecret(null)}>
          <p>Give it to your server.</p>
        </Secret>
      )}
    </Page>
  );
}

interface ActionsProps {
  webhook: StoredWebhook;
  onChanged: () => void;
  onSecret: (secret: string) => void;
}

function Actions({ webhook: { _id, url, status }, onChanged, onSecret }: ActionsProps) {
  const { run, isRunning, error } = useTask();
  const [answer, setAnswer] = useState<Attempt | null>(null);
  const { webhooks } = client.value;
  const isEnabled = status === "enabled";
  const test = () => run(async () => setAnswer(await webhooks.test(_id)));
  const toggle = () =>
    run(async () => {
      await webhooks.update(_id, { status: isEnabled ? "disabled" : "enabled" });
      announce(isEnabled ? "Disabled." : "Enabled.");
      onChanged();
    });
  const rotate = () => {
    let revokeOld = false;
    askFirst({
      title: "Make a new secret?",
      text: (
        <label>
          <input
            type="checkbox"
            onChange={(event) => {
              revokeOld = event.currentTarget.checked;
            }}
          />{" "}
          Revoke the old one at once. Otherwise both sign for 24 hours, so that your server can be changed meanwhile.
        </label>
      ),
      action: "Make new secret",
      isDangerous: false,
      onConfirm: async () => onSecret((await webhooks.rotateSecret(_id, { revokeOld })).secret),
    });
  };
  const remove = () =>
    askFirst({
      title: "Delete this webhook?",
      text: `${url} is told of nothing any more, and the log of its deliveries goes.`,
      action: "Delete webhook",
      onConfirm: async () => {
        await webhooks.delete(_id);
        announce("Webhook deleted.");
        navigate(href("/webhooks"));
      },
    });
  return (
    <>
      <div class="actions">
        <button type="button" class="button primary" disabled={isRunning} onClick={test}>
          Send a test
        </button>
        <button type="button" class="button" disabled={isRunning} onClick={toggle}>
          {isEnabled ? "Disable" : "Enable"}
        </button>
        <button type="button" class="button" onClick={rotate}>
          New secret
        </button>
        <button type="button" class="button danger" onClick={remove}>
          Delete webhook
        </button>
      </div>
      <Failure error={error} />
      <div role="status">
        {answer && (
          <div class="card stack">
            <h2>Answer to the test</h2>
            <AttemptLine attempt={answer} />
          </div>
        )}
      </div>
    </>
  );
}

function AttemptLine({ attempt: { at, httpStatus, error, durationMilliseconds, responseBody } }: { attempt: Attempt }) {
  return (
    <>
      <p>
        <strong>{httpStatus ?? (error && ERRORS[error])}</strong> after {durationMilliseconds} ms, <Time at={at} />
      </p>
      {responseBody && <pre class="json">{responseBody}</pre>}
    </>
  );
}

function Deliveries({ id }: { id: string }) {
  const deliveries = useListing((signal) => client.value.webhooks.deliveries(id, { signal }), [id]);
  const isPending = deliveries.items?.some(({ status }) => status === "pending") ?? false;
  useEffect(() => onEvent(() => deliveries.reload()), [deliveries.reload]);
  useEffect(() => {
    if (!isPending) return;
    const timer = setInterval(deliveries.reload, LOOK_MILLISECONDS);
    return () => clearInterval(timer);
  }, [isPending, deliveries.reload]);
  return (
    <section class="stack" aria-labelledby="deliveries">
      <header class="page-header">
        <h2 id="deliveries">Deliveries</h2>
        <Replay id={id} onReplayed={deliveries.reload} />
      </header>
      <Failure error={deliveries.error} onRetry={deliveries.reload} />
      {deliveries.items?.length === 0 && (
        <Empty title="Nothing was sent yet">
          <p>Each event that this webhook is told of appears here, with every try and its answer.</p>
        </Empty>
      )}
      {deliveries.items && deliveries.items.length > 0 && (
        <ul class="cards">
          {deliveries.items.map((delivery) => (
            <Row key={delivery._id} delivery={delivery} onSent={deliveries.reload} />
          ))}
        </ul>
      )}
      <More of={deliveries} />
    </section>
  );
}

function Row({ delivery, onSent }: { delivery: Delivery; onSent: () => void }) {
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
          {EVENT_WORDS[type]} {STATUSES[status]}{" "}
          <span class="quiet">
            {attempts.length === 1 ? "1 try" : `${attempts.length} tries`}
            {nextAttemptAt && status === "pending" && attempts.length > 0 && (
              <>
                , next <Time at={nextAttemptAt} />
              </>
            )}
          </span>
        </summary>
        <div class="stack">
          {attempts.map((attempt) => (
            <div key={attempt.at}>
              <AttemptLine attempt={attempt} />
            </div>
          ))}
          <p class="quiet">
            Event <code>{eventId}</code>
          </p>
          <Failure error={error} />
          <div class="actions">
            <button type="button" class="button small" disabled={isRunning} onClick={redeliver}>
              Send again
            </button>
          </div>
        </div>
      </details>
    </li>
  );
}

/** Sends again what happened since an event, in as many steps as the service takes. */
function Replay({ id, onReplayed }: { id: string; onReplayed: () => void }) {
  const [isAsking, setAsking] = useState(false);
  const { run, isRunning, error } = useTask();
  const close = () => setAsking(false);
  const replay = (form: HTMLFormElement) =>
    run(async () => {
      const failedOnly = new FormData(form).has("failedOnly");
      let count = 0;
      let after: string | null = textOf(form, "after");
      while (after !== null) {
        const { deliveries, next } = await client.value.webhooks.replay(id, { after, failedOnly });
        count += deliveries;
        after = next;
      }
      announce(`Being sent again: ${count}.`);
      onReplayed();
      close();
    });
  return (
    <>
      <button type="button" class="button" onClick={() => setAsking(true)}>
        Replay
      </button>
      {isAsking && (
        <Dialog title="Send again what happened" onClose={close}>
          <form class="stack" onSubmit={onSubmit(replay)}>
            <TextField
              label="Since the event"
              name="after"
              required
              spellcheck={false}
              hint="Its id, from the list of events. That one is not sent."
            />
            <label>
              <input type="checkbox" name="failedOnly" /> Only what failed
            </label>
            <Failure error={error} />
            <div class="actions">
              <button type="button" class="button" onClick={close}>
                Cancel
              </button>
              <button type="submit" class="button primary" disabled={isRunning}>
                Send again
              </button>
            </div>
          </form>
        </Dialog>
      )}
    </>
  );
}
