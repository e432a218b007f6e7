import { useState } from "preact/hooks";
import { StowageError } from "../../client/stowage.ts";
import { Form, TextField } from "../parts/form.tsx";
import { Page } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { acceptInvitation } from "../session.ts";
import { UserError } from "../user-error.ts";

/** The page of an invitation or a password reset. It needs no session: the URL's fragment has a token that works once. */
export function AcceptInvitation() {
  const [isShown, setShown] = useState(false);
  const { run, isRunning, error } = useTask();
  const submit = (form: HTMLFormElement) =>
    run(async () => {
      const password = String(new FormData(form).get("password"));
      try {
        await acceptInvitation({ token: location.hash.slice(1), password });
      } catch (error) {
        if (!(error instanceof StowageError && error.code === "token_invalid")) throw error;
        throw new UserError("This link has expired or was already used. Ask your admin for a new one.");
      }
    });
  return (
    <main class="sign-in" id="content" tabIndex={-1}>
      <p class="brand">
        <img src="/assets/icon.svg" alt="" width="36" height="36" />
        <strong>Stowage</strong>
      </p>
      <div class="card">
        <Page title="Set your password">
          <Form
            error={error}
            onSubmit={submit}
            end={
              <button type="submit" class="button primary" aria-disabled={isRunning}>
                Set password and sign in
              </button>
            }
          >
            <TextField
              label="New password"
              name="password"
              type={isShown ? "text" : "password"}
              autocomplete="new-password"
              spellcheck={false}
              required
              hint="At least 8 characters. Your other sessions end."
            />
            <label class="quiet">
              <input type="checkbox" checked={isShown} onChange={() => setShown(!isShown)} /> Show what I type
            </label>
          </Form>
        </Page>
      </div>
    </main>
  );
}
