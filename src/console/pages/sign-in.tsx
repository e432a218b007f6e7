import { useState } from "preact/hooks";
import { Form, TextField, textOf } from "../parts/form.tsx";
import { Page } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { query } from "../router.ts";
import { isExpired, session, signInWithKey, signInWithPassword } from "../session.ts";
import { unfinishedUploads } from "../uploads/upload.ts";

const METHODS = { key: "API key", password: "Email and password" };

/** Shown at every URL while signed out. Afterward, the requested page appears. */
export function SignIn() {
  const team = query.value.get("team") ?? session.value?.team?.id ?? "";
  const [method, setMethod] = useState<keyof typeof METHODS>(query.value.has("team") ? "password" : "key");
  const { run, isRunning, error } = useTask();
  const submit = (form: HTMLFormElement) =>
    run(() =>
      method === "key"
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
        {isExpired.value && (
          <p class="notice" role="status">
            Your session has expired. Sign in again.
            {unfinishedUploads().length > 0 &&
              " Your uploads then continue. If the session was ended, they start over."}
          </p>
        )}
        <fieldset class="segments">
          <legend class="visually-hidden">How to sign in</legend>
          {Object.entries(METHODS).map(([value, label]) => (
            <label key={value}>
              <input
                type="radio"
                name="method"
                value={value}
                checked={method === value}
                onChange={() => setMethod(value as keyof typeof METHODS)}
              />
              {label}
            </label>
          ))}
        </fieldset>
        <Form
          error={error}
          onSubmit={submit}
          end={
            <button type="submit" class="button primary" aria-disabled={isRunning}>
              Sign in
            </button>
          }
        >
          {method === "key" ? (
            <TextField
              key="key"
              label="Secret key or operator token"
              name="key"
              type="password"
              required
              spellcheck={false}
              hint="We don't store your key. This tab uses a session that ends after 12 hours or when you sign out."
            />
          ) : (
            <>
              <TextField
                key="team"
                label="Team ID"
                name="teamId"
                defaultValue={team}
                required
                spellcheck={false}
                hint="Ask your admin, or use your team's sign-in link."
              />
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
