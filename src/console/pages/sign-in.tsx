import { useState } from "preact/hooks";
import { Form, TextField, textOf } from "../parts/form.tsx";
import { Page } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { query } from "../router.ts";
import { hasEnded, session, signInWithKey, signInWithPassword } from "../session.ts";

const WAYS = { key: "With a key", password: "With email and password" };

/** For whoever is not signed in, at every address: what was asked for is shown afterwards. */
export function SignIn() {
  const team = query.value.get("team") ?? session.value?.team?.id ?? "";
  const [way, setWay] = useState<keyof typeof WAYS>(query.value.has("team") ? "password" : "key");
  const { run, isRunning, error } = useTask();
  const send = (form: HTMLFormElement) =>
    run(() =>
      way === "key"
        ? signInWithKey(textOf(form, "key"))
        : signInWithPassword({
            teamId: textOf(form, "teamId"),
            email: textOf(form, "email"),
            password: String(new FormData(form).get("password")),
          }),
    );
  return (
    <main class="sign-in" id="content">
      <Page title="Sign in">
        {hasEnded.value && (
          <p class="notice" role="status">
            Your key has ended or was revoked. Sign in as before: what is being uploaded waits for you.
          </p>
        )}
        <fieldset class="segments">
          <legend class="visually-hidden">How to sign in</legend>
          {Object.entries(WAYS).map(([value, label]) => (
            <label key={value}>
              <input
                type="radio"
                name="way"
                value={value}
                checked={way === value}
                onChange={() => setWay(value as keyof typeof WAYS)}
              />
              {label}
            </label>
          ))}
        </fieldset>
        <Form
          error={error}
          onSend={send}
          end={
            <button type="submit" class="button primary" aria-disabled={isRunning}>
              Sign in
            </button>
          }
        >
          {way === "key" ? (
            <TextField
              key="key"
              label="Secret key, or the operator's token"
              name="key"
              type="password"
              required
              spellcheck={false}
              hint="It is not kept: this tab makes a key of its own from it, which ends after 12 hours or when you sign out."
            />
          ) : (
            <>
              <TextField key="team" label="Team" name="teamId" defaultValue={team} required spellcheck={false} />
              <TextField key="email" label="Email" name="email" type="email" autocomplete="username" required />
              <TextField
                key="password"
                label="Password"
                name="password"
                type="password"
                autocomplete="current-password"
                required
              />
            </>
          )}
        </Form>
      </Page>
    </main>
  );
}
