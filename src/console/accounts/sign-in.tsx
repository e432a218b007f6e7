import { useEffect, useRef, useState } from "preact/hooks";
import { query } from "../framework/router.ts";
import {
  isExpired,
  lastTeam,
  rememberTeam,
  requestReset,
  session,
  signInWithKey,
  signInWithPassword,
} from "../framework/session.ts";
import { readStored, store } from "../framework/storage.ts";
import { useTask } from "../framework/task.ts";
import { Segments } from "../parts/choice.tsx";
import { Form, passwordOf, SecretField, TextField, textOf } from "../parts/form.tsx";
import { Entrance, Page } from "../parts/page.tsx";
import { uploading } from "../uploads/later.tsx";

/** A complete secret key. Once one is pasted, nothing is left to enter. */
const KEY = /^\s*stow_sk_\w{40}\s*$/;
/** The team in a sign-in link, or in an invitation that has one. */
const LINKED_TEAM = /[?&]team=([0-9a-f]{24})/;
const METHODS = { password: "Email and password", key: "API key" };
type Method = keyof typeof METHODS;
/** How somebody last signed in on this device. It isn't secret. */
const LAST_METHOD = "stowage.sign-in";

/** Shown at every URL while signed out. Afterward, the requested page appears. */
export function SignIn() {
  const last = lastTeam();
  const team = query.value.get("team") ?? session.value?.team?.id ?? last?.id ?? "";
  const [method, setMethod] = useState<Method>(() =>
    readStored("localStorage", LAST_METHOD) === "key" ? "key" : "password",
  );
  /** Whether the team of the last sign-in is replaced. */
  const [isOtherTeam, setOtherTeam] = useState(false);
  /** Whether the form asks for a link to set a new password. */
  const [isReset, setReset] = useState(false);
  const [isSent, setSent] = useState(false);
  const form = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const empty = [...(form.current?.querySelectorAll("input") ?? [])].find(({ value }) => value === "");
    empty?.focus();
  }, [method, isReset, isOtherTeam]);
  const signIn = useTask();
  const reset = useTask();
  const { run, isRunning, error } = isReset ? reset : signIn;
  const choose = (isReset: boolean, method: Method = "password") => {
    setMethod(method);
    setReset(isReset);
    setSent(false);
  };
  const useKey = (key: string) =>
    signIn.run(async () => {
      await signInWithKey(key);
      store("localStorage", LAST_METHOD, "key");
    });
  const paste = (event: ClipboardEvent) => {
    const text = event.clipboardData?.getData("text") ?? "";
    if (!KEY.test(text)) return;
    event.preventDefault();
    choose(false, "key");
    void useKey(text.trim());
  };
  const submit = (form: HTMLFormElement) => {
    if (method === "key") return useKey(textOf(form, "key"));
    return run(async () => {
      if (isReset) {
        setSent(false);
        await requestReset({ teamId: textOf(form, "teamId"), email: textOf(form, "email") });
        setSent(true);
      } else {
        const teamId = textOf(form, "teamId");
        await signInWithPassword({ teamId, email: textOf(form, "email"), password: passwordOf(form) });
        if (teamId !== last?.id) rememberTeam({ id: teamId });
        store("localStorage", LAST_METHOD, method);
      }
    });
  };
  return (
    <Entrance>
      <div ref={form} onPaste={paste}>
        <Page title={isReset ? "Reset your password" : "Sign in"}>
          {isExpired.value && (
            <p class="notice" role="status">
              Your session has expired. Sign in again.
              {(uploading.loaded.value?.unfinishedUploads().length ?? 0) > 0 &&
                " Your uploads then continue. If the session was ended, they start over."}
            </p>
          )}
          <Segments
            label="How to sign in"
            options={METHODS}
            chosen={method}
            onChoose={(chosen) => choose(false, chosen)}
          />
          <Form
            error={error}
            onSubmit={submit}
            end={
              <>
                <p role="status" class={isSent ? "notice" : "visually-hidden"}>
                  {isSent &&
                    "If a user has this email, we've sent a link to set a new password. It works for 24 hours."}
                </p>
                <button type="submit" class="button primary" aria-disabled={isRunning}>
                  {isReset ? "Send link" : "Sign in"}
                </button>
                {method === "password" && (
                  <button type="button" class="button ghost link" onClick={() => choose(!isReset)}>
                    {isReset ? "Back to sign-in" : "Forgot your password?"}
                  </button>
                )}
              </>
            }
          >
            {method === "key" ? (
              <SecretField
                key="key"
                label="Secret key or operator token"
                name="key"
                hint="We don't store your key. This tab uses a session that ends after 12 hours or when you sign out. The operator token isn't kept, so you enter it again after a reload."
              />
            ) : (
              <>
                {last?.name && last.id === team && !isOtherTeam ? (
                  <p key="last-team">
                    <input type="hidden" name="teamId" value={team} />
                    Team: <strong>{last.name}</strong>{" "}
                    <button type="button" class="button ghost" onClick={() => setOtherTeam(true)}>
                      Change
                    </button>
                  </p>
                ) : (
                  <TextField
                    key="team"
                    label="Team ID or sign-in link"
                    name="teamId"
                    defaultValue={isOtherTeam ? "" : team}
                    required
                    spellcheck={false}
                    hint="Your invitation has the sign-in link. Otherwise, ask your admin."
                    onInput={({ currentTarget: input }) => {
                      const [, id] = LINKED_TEAM.exec(input.value) ?? [];
                      if (id) input.value = id;
                    }}
                  />
                )}
                <TextField key="email" label="Email" name="email" type="email" autocomplete="username" required />
                {!isReset && (
                  <SecretField key="password" label="Password" name="password" autocomplete="current-password" />
                )}
              </>
            )}
          </Form>
        </Page>
      </div>
    </Entrance>
  );
}
