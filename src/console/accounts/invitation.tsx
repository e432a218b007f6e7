import { useEffect, useState } from "preact/hooks";
import { type ApiKey, type InvitationDescription, StowageError } from "../../client/index.ts";
import { UserError } from "../framework/errors.ts";
import { href, navigate } from "../framework/router.ts";
import { acceptInvitation, describeInvitation, startInvited } from "../framework/session.ts";
import { useTask } from "../framework/task.ts";
import { ROLE_LABELS } from "../parts/access.tsx";
import { Failure } from "../parts/failure.tsx";
import { Form, passwordOf, SecretField } from "../parts/form.tsx";
import { Entrance, Page, Skeleton } from "../parts/page.tsx";

const explain = (error: unknown): never => {
  if (!(error instanceof StowageError && error.code === "token_invalid")) throw error;
  throw new UserError("This link has expired or was already used. Ask your admin for a new one.");
};

/** The page of an invitation or a password reset. It needs no session: the URL's fragment has a token that works once. */
export function AcceptInvitation() {
  const [token] = useState(location.hash.slice(1));
  const [invitation, setInvitation] = useState<InvitationDescription | null>(null);
  const { run, isRunning, error } = useTask();
  const load = () => void run(() => describeInvitation(token).then(setInvitation, explain));
  useEffect(load, []);
  /** The token of the session, once the password is set. If only the sign-in fails, it alone is repeated. */
  const [accepted, setAccepted] = useState<ApiKey | null>(null);
  const submit = (form: HTMLFormElement) =>
    run(async () => {
      const created = accepted ?? (await acceptInvitation({ token, password: passwordOf(form) }).catch(explain));
      setAccepted(created);
      await startInvited(created, () => navigate(href("/"), { replace: true }));
    });
  const title = !invitation
    ? "Choose a password"
    : invitation.hasPassword
      ? "Reset your password"
      : `Welcome to ${invitation.teamName}`;
  return (
    <Entrance>
      <Page title={title}>
        {invitation ? (
          <Form
            error={error}
            onSubmit={submit}
            end={
              <button type="submit" class="button primary" aria-disabled={isRunning}>
                {accepted ? "Sign in" : "Set password and sign in"}
              </button>
            }
          >
            <p>
              You sign in {invitation.hasPassword && `to ${invitation.teamName} `}as <strong>{invitation.email}</strong>
              , with the role {ROLE_LABELS[invitation.role]}.
            </p>
            {accepted ? (
              <p class="notice" role="status">
                Your password is set.
              </p>
            ) : (
              <SecretField
                label={invitation.hasPassword ? "New password" : "Choose a password"}
                name="password"
                autocomplete="new-password"
                hint="At least 8 characters."
              />
            )}
          </Form>
        ) : error ? (
          <Failure error={error} onRetry={error instanceof UserError ? undefined : load} />
        ) : (
          <Skeleton rows={3} />
        )}
      </Page>
    </Entrance>
  );
}
