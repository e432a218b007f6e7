import { useEffect, useRef, useState } from "preact/hooks";
import { Form, TextField, textOf } from "../parts/form.tsx";
import { Page } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { query } from "../router.ts";
import { isExpired, session, signInWithKey, signInWithPassword } from "../session.ts";
import { unfinishedUploads } from "../uploads/upload.ts";

const METHODS = { password: "Email and password", key: "API key" };
type Method = keyof typeof METHODS;
/** How and to which team somebody signed in on this device. Neither is secret. */
const LAST_METHOD = "stowage.sign-in";
const LAST_TEAM = "stowage.team";

/** Shown at every URL while signed out. Afterward, the requested page appears. */
export function SignIn() {
  const team = query.value.get("team") ?? session.value?.team?.id ?? localStorage.getItem(LAST_TEAM) ?? "";
  const [method, setMethod] = useState<Method>(() =>
    query.value.has("team") || localStorage.getItem(LAST_METHOD) === "password" ? "password" : "key",
  );
  const [isShown, setShown] = useState(false);
  const form = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const empty = [...(form.current?.querySelectorAll("input") ?? [])].find(({ value }) => value === "");
    empty?.focus();
  }, [method]);
  const { run, isRunning, error } = useTask();
  const submit = (form: HTMLFormElement) =>
    run(async () => {
      if (method === "key") await signInWithKey(textOf(form, "key"));
      else {
        const teamId = textOf(form, "teamId");
        const password = String(new FormData(form).get("password"));
        await signInWithPassword({ teamId, email: textOf(form, "email"), password });
        localStorage.setItem(LAST_TEAM, teamId);
        localStorage.setItem(LAST_METHOD, method);
      }
    });
  const secret = isShown ? "text" : "password";
  return (
    <main class="sign-in" id="content" tabIndex={-1}>
      <p class="brand">
        <img src="/assets/icon.svg" alt="" width="36" height="36" />
        <strong>Stowage</strong>
      </p>
      <div class="card" ref={form}>
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
                  onChange={() => setMethod(value as Method)}
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
                type={secret}
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
                  type={secret}
                  autocomplete="current-password"
                  required
                />
              </>
            )}
            <label class="quiet">
              <input type="checkbox" checked={isShown} onChange={() => setShown(!isShown)} /> Show what I type
            </label>
          </Form>
        </Page>
      </div>
    </main>
  );
}
