import { useEffect, useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { onEvent } from "../live.ts";
import { announce } from "../parts/announce.tsx";
import { askFirst } from "../parts/dialog.tsx";
import { FactList } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { useLoaded } from "../parts/loading.ts";
import { Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { useTask } from "../parts/task.ts";
import { isMissing, Unloaded } from "../parts/unloaded.tsx";
import { CopyButton, Time } from "../parts/values.tsx";
import { WebhookForm } from "../parts/webhook-form.tsx";
import { href, navigate } from "../router.ts";
import { client } from "../session.ts";
import { type Attempt, AttemptFacts, Deliveries } from "./deliveries.tsx";
import { WebhookStatus, wantedBy } from "./webhooks.tsx";

/** One webhook: what it is, what was sent to it, and all that can be done with it. */
export function WebhookPage({ id }: { id: string }) {
  const loaded = useLoaded((signal) => client.value.webhooks.get(id, { signal }), [id]);
  const { value: webhook, error, reload } = loaded;
  const [secret, setSecret] = useState<string | null>(null);
  useEffect(() => onEvent(({ subject }) => subject.id === id && reload()), [id, reload]);
  const back = <a href={href("/webhooks")}>All webhooks</a>;
  if (!webhook || isMissing(error)) return <Unloaded what="Webhook" of={loaded} back={back} />;
  const { url, description, createdAt } = webhook;
  return (
    <Page title={new URL(url).host} actions={<WebhookStatus webhook={webhook} />}>
      <p>{back}</p>
      <Failure error={error} onRetry={reload} />
      <Actions webhook={webhook} onChanged={reload} onSecret={setSecret} />
      <FactList
        title="Webhook"
        facts={{
          Address: <bdi>{url}</bdi>,
          Description: description ? <bdi>{description}</bdi> : null,
          Events: wantedBy(webhook),
          Created: <Time at={createdAt} />,
          Id: (
            <>
              <code>{id}</code> <CopyButton text={id} what="id" />
            </>
          ),
        }}
      />
      <Deliveries id={id} />
      {secret && (
        <Secret title="New secret" what="secret" secret={secret} onClose={() => setSecret(null)}>
          <p>Your server verifies with it that a message is from here: change it there now.</p>
        </Secret>
      )}
    </Page>
  );
}

interface ActionsProps {
  webhook: Webhook;
  onChanged: () => void;
  onSecret: (secret: string) => void;
}

function Actions({ webhook, onChanged, onSecret }: ActionsProps) {
  const { run, isRunning, error } = useTask();
  const [answer, setAnswer] = useState<Attempt | null>(null);
  const [isChanging, setChanging] = useState(false);
  const { _id, url, status } = webhook;
  const { webhooks } = client.value;
  const isEnabled = status === "enabled";
  const test = () =>
    run(async () => {
      setAnswer(null);
      setAnswer(await webhooks.test(_id));
    });
  const toggle = () =>
    run(async () => {
      await webhooks.update(_id, { status: isEnabled ? "disabled" : "enabled" });
      announce(isEnabled ? "Disabled: nothing is sent any more." : "Enabled.");
      onChanged();
    });
  const rotate = () => {
    let revokeOld = false;
    askFirst({
      title: "Make a new secret?",
      text: (
        <>
          <p>Both secrets sign for 24 hours, so that your server can be changed meanwhile.</p>
          <label>
            <input
              type="checkbox"
              onChange={(event) => {
                revokeOld = event.currentTarget.checked;
              }}
            />{" "}
            Revoke the old one at once
          </label>
        </>
      ),
      action: "Make new secret",
      isDangerous: false,
      onConfirm: async () => onSecret((await webhooks.rotateSecret(_id, { revokeOld })).secret),
    });
  };
  const remove = () =>
    askFirst({
      title: "Delete this webhook?",
      text: `${url} is told of nothing any more, and the log of its deliveries is lost.`,
      action: "Delete webhook",
      onConfirm: async () => {
        await webhooks.delete(_id);
        announce("Webhook deleted.");
        navigate(href("/webhooks"));
      },
    });
  return (
    <>
      <Failure error={error} />
      <div>
        <div class="actions">
          <button type="button" class="button primary" aria-disabled={isRunning} onClick={test}>
            Send a test
          </button>
          <button type="button" class="button" onClick={() => setChanging(true)}>
            Change
          </button>
          <button type="button" class="button" aria-disabled={isRunning} onClick={toggle}>
            {isEnabled ? "Disable" : "Enable"}
          </button>
          <button type="button" class="button" onClick={rotate}>
            New secret
          </button>
          <button type="button" class="button danger" onClick={remove}>
            Delete
          </button>
        </div>
        <div role="status" class="result">
          {answer && (
            <div class="card stack">
              <h2>Answer to the test</h2>
              <AttemptFacts attempt={answer} />
            </div>
          )}
        </div>
      </div>
      {isChanging && (
        <WebhookForm
          webhook={webhook}
          onSave={async (changes) => {
            await webhooks.update(_id, changes);
            setChanging(false);
            announce("Saved.");
            onChanged();
          }}
          onClose={() => setChanging(false)}
        />
      )}
    </>
  );
}
