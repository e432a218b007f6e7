import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { leave } from "./leaving.tsx";
import { canFollow, isLive, isLost } from "./live.ts";
import { Files } from "./pages/files.tsx";
import { NotFound } from "./pages/not-found.tsx";
import { SignIn } from "./pages/sign-in.tsx";
import { MissingScopes, ROLE_LABELS } from "./parts/access.tsx";
import { Announcements } from "./parts/announce.tsx";
import { ConfirmDialog } from "./parts/dialog.tsx";
import { Failure } from "./parts/failure.tsx";
import { lazyPage, preloadPages } from "./parts/lazy.tsx";
import { Page } from "./parts/page.tsx";
import { href, steps } from "./router.ts";
import { can, isExpired, me, type Scope, session } from "./session.ts";
import { PlayerBar } from "./sound/player.tsx";
import type { SavedSession } from "./token.ts";
import { UploadCard } from "./uploads/card.tsx";
import { DropZone } from "./uploads/drop-zone.tsx";

const Account = lazyPage(() => import("./pages/account.tsx"), "Account");
const FilePage = lazyPage(() => import("./pages/file.tsx"), "FilePage");
const Keys = lazyPage(() => import("./pages/keys.tsx"), "Keys");
const Users = lazyPage(() => import("./pages/users.tsx"), "Users");
const Events = lazyPage(() => import("./pages/events.tsx"), "Events");
const EventPage = lazyPage(() => import("./pages/event.tsx"), "EventPage");
const Webhooks = lazyPage(() => import("./pages/webhooks.tsx"), "Webhooks");
const WebhookPage = lazyPage(() => import("./pages/webhook.tsx"), "WebhookPage");
const Teams = lazyPage(() => import("./pages/teams.tsx"), "Teams");
const Usage = lazyPage(() => import("./pages/usage.tsx"), "Usage");

interface Section {
  label: string;
  /** Sessions without it don't see the section. */
  scope?: Scope;
  /** The pages by the number of further path segments: the list, and one of its records. */
  pages: ComponentType<{ id: string }>[];
}

/** The sections by the first segment of the path. */
const TEAM_SECTIONS: Record<string, Section> = {
  files: { label: "Files", scope: "files:read", pages: [Files, FilePage] },
  keys: { label: "Keys", scope: "keys:read", pages: [Keys] },
  users: { label: "Users", scope: "users:read", pages: [Users] },
  events: { label: "Events", scope: "events:read", pages: [Events, EventPage] },
  webhooks: { label: "Webhooks", scope: "webhooks:read", pages: [Webhooks, WebhookPage] },
  usage: { label: "Usage", scope: "files:read", pages: [Usage] },
};
const OPERATOR_SECTIONS: Record<string, Section> = {
  teams: { label: "Teams", pages: [Teams] },
  keys: { label: "Keys", pages: [Keys] },
};
/** Linked from the name of the user. */
const ACCOUNT: Section = { label: "Your session", pages: [Account] };

export function Shell() {
  const current = session.value;
  const isSignedIn = current !== null && !isExpired.value;
  return (
    <>
      <a class="skip" href="#content">
        Skip to content
      </a>
      {isSignedIn ? (
        <Workspace sections={current.team ? TEAM_SECTIONS : OPERATOR_SECTIONS} team={current.team} />
      ) : (
        <>
          <header class="bar">
            <Brand />
          </header>
          <SignIn />
        </>
      )}
      <ConfirmDialog />
      <Announcements />
    </>
  );
}

function Brand() {
  return (
    <a class="brand" href="/">
      <img src="/assets/icon.svg" alt="" width="28" height="28" />
      Stowage
    </a>
  );
}

/** Shows an error in place of a page that can't be rendered. The rest of the console keeps working. */
function ErrorBoundary({ children }: { children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary((thrown) => reportError(thrown));
  if (!error) return <>{children}</>;
  return (
    <Page title="Something went wrong">
      <Failure error={error} onRetry={reset} />
    </Page>
  );
}

/** A section that the session's scopes exclude. The API would reject its requests. */
const NoAccess = ({ scope }: { scope: Scope }) => (
  <Page title="No access">
    <MissingScopes scopes={[scope]} />
  </Page>
);

interface WorkspaceProps {
  sections: Record<string, Section>;
  /** Null for the operator. */
  team: SavedSession | null;
}

function Workspace({ sections, team }: WorkspaceProps) {
  const visible = Object.entries(sections).filter(([, { scope }]) => !scope || can(scope));
  const [first = visible[0]?.[0] ?? "session", ...rest] = steps.value;
  useEffect(preloadPages, []);
  const isOffline = team !== null && isLost.value;
  const section = team && first === "session" ? ACCOUNT : Object.hasOwn(sections, first) ? sections[first] : undefined;
  const Shown = section?.pages[rest.length] ?? NotFound;
  return (
    <div class="workspace">
      <header class="bar">
        <Brand />
        <nav aria-label="Sections">
          <ul>
            {visible.map(([step, { label }]) => (
              <li key={step}>
                <a href={href(`/${step}`)} aria-current={step === first ? "page" : undefined}>
                  {label}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <div class="account">
          {team ? (
            <p>
              <a href={href("/session")} aria-current={first === "session" ? "page" : undefined}>
                <bdi>{team.name}</bdi>
              </a>
              {me.value?.role && ` · ${ROLE_LABELS[me.value.role]}`}
            </p>
          ) : (
            <p>Operator</p>
          )}
          <button type="button" class="button small" onClick={() => leave()}>
            Sign out
          </button>
        </div>
      </header>
      <div class="place">
        <main id="content" tabIndex={-1}>
          <p role="status" class={isOffline ? "notice" : "visually-hidden"}>
            {isOffline
              ? "You're offline. Changes will appear when you reconnect."
              : team && canFollow.value && !isLive.value && "Connecting…"}
          </p>
          <ErrorBoundary key={steps.value.join("/")}>
            {section?.scope && !can(section.scope) ? <NoAccess scope={section.scope} /> : <Shown id={rest.join("/")} />}
          </ErrorBoundary>
        </main>
        {team && <PlayerBar />}
      </div>
      {team && <UploadCard />}
      {team && can("files:upload") && <DropZone />}
    </div>
  );
}
