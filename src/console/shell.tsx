import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import { useTeam } from "./data.ts";
import { Announcements } from "./framework/announce.tsx";
import { Dialogs } from "./framework/dialog.tsx";
import { canFollow, isLive, isLost } from "./framework/live.ts";
import { href, navigate, steps } from "./framework/router.ts";
import { preloadScripts, script } from "./framework/script.tsx";
import {
  can,
  isAsking,
  isExpired,
  isLeaving,
  lastTeam,
  limitedUntil,
  me,
  rememberTeam,
  type Scope,
  sendsEmail,
  session,
  trashDays,
} from "./framework/session.ts";
import type { SavedSession } from "./framework/token.ts";
import { announceSignOut, leave } from "./leaving.tsx";
import { PALETTE_KEYS } from "./palette.tsx";
import { MissingScopes, ROLE_LABELS } from "./parts/access.tsx";
import { Failure } from "./parts/failure.tsx";
import { Icon } from "./parts/icon.tsx";
import { NotFound } from "./parts/not-found.tsx";
import { Entrance, Page } from "./parts/page.tsx";
import { Popover } from "./parts/popover.tsx";
import { allSections, type Section, visibleSections } from "./sections.ts";
import { togglePalette } from "./shortcuts.tsx";
import { PlayerPlace } from "./sound/player-place.tsx";
import { DropZone } from "./uploads/drop-zone.tsx";
import { UploadCard } from "./uploads/later.tsx";

const AcceptInvitation = script(() => import("./accounts/invitation.tsx")).view(
  ({ AcceptInvitation }) => AcceptInvitation,
);
const FailingDot = script(() => import("./webhooks/failing-dot.tsx")).view(
  ({ FailingDot }) => FailingDot,
  () => null,
);
const KeyNotice = script(() => import("./accounts/key-notice.tsx")).view(
  ({ KeyNotice }) => KeyNotice,
  () => null,
);
const signIn = script(() => import("./accounts/sign-in.tsx"));
const SignIn = signIn.view(
  ({ SignIn }) => SignIn,
  ({ failure }) => failure && <Entrance>{failure}</Entrance>,
);

export function Shell() {
  const current = session.value;
  const isSignedIn = current !== null && !isExpired.value;
  useEffect(announceSignOut, []);
  // Also above the sign-in: the script of uploads deletes saved files that have expired.
  useEffect(preloadScripts, []);
  // While the other tabs are asked for their session. A failure shows once it is needed.
  useEffect(() => {
    if (isAsking.peek()) signIn.load().catch(() => {});
  }, []);
  // A signed-in user who opens the sign-in URL gets the first page.
  const isAtSignIn = isSignedIn && steps.value[0] === "sign-in";
  useEffect(() => {
    if (isAtSignIn) navigate(href("/"), { replace: true });
  }, [isAtSignIn]);
  return (
    <>
      <a class="skip" href="#content">
        Skip to content
      </a>
      {steps.value[0] === "invitation" ? (
        <AcceptInvitation />
      ) : isSignedIn ? (
        <Workspace team={current.team} />
      ) : isLeaving.value ? (
        <Entrance>
          <Page title="Signing out…">{null}</Page>
        </Entrance>
      ) : (
        !isAsking.value && <SignIn />
      )}
      <Dialogs />
      <Announcements />
    </>
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

/** Says how long the service rejects requests. They are repeated by themselves. Screen readers don't count along. */
function LimitNotice() {
  const [now, setNow] = useState(Date.now());
  const until = limitedUntil.value;
  useEffect(() => {
    const timer = setInterval(() => {
      setNow(Date.now());
      if (Date.now() >= until) clearInterval(timer);
    }, 1000);
    setNow(Date.now());
    return () => clearInterval(timer);
  }, [until]);
  const seconds = Math.ceil((until - now) / 1000);
  if (seconds <= 0) return null;
  return (
    <p class="notice" role="status">
      Too many requests. Trying again <span aria-hidden="true">in {seconds} s.</span>
      <span class="visually-hidden">soon.</span>
    </p>
  );
}

/** Why changes don't arrive. */
const lostMessage = () =>
  navigator.onLine ? "Can't reach Stowage. Reconnecting…" : "You're offline. Changes will appear when you reconnect.";

function Workspace({ team }: { team: SavedSession | null }) {
  const sections = visibleSections();
  const [first = sections[0]?.[0] ?? "session", ...rest] = steps.value;
  const isOffline = team !== null && isLost.value;
  const all = allSections();
  const section = Object.hasOwn(all, first) ? all[first] : undefined;
  const Shown = section?.pages[rest.length] ?? NotFound;
  return (
    <div class="workspace">
      <Bar sections={sections.filter(([, { group }]) => group)} first={first} team={team} />
      <main id="content" tabIndex={-1}>
        <p role="status" class={isOffline ? "notice" : "visually-hidden"}>
          {isOffline ? lostMessage() : team && canFollow.value && !isLive.value && "Connecting…"}
        </p>
        <LimitNotice />
        {team && can("keys:write") && <KeyNotice />}
        <ErrorBoundary key={steps.value.join("/")}>
          {section?.scope && !can(section.scope) ? (
            <NoAccess scope={section.scope} />
          ) : (
            <Shown id={rest.join("/")} create={section?.create} />
          )}
        </ErrorBoundary>
      </main>
      {team && <UploadCard />}
      {team && <PlayerPlace />}
      {team && can("files:upload") && <DropZone />}
    </div>
  );
}

interface BarProps {
  sections: [string, Section][];
  /** The first segment of the path. */
  first: string;
  team: SavedSession | null;
}

const ReferenceLink = () => (
  <a href="/reference" target="_blank" rel="noreferrer">
    <Icon name="book" />
    API reference <Icon name="external" size={12} />
  </a>
);

/** The sidebar; on a phone, the bar at the top and the tabs at the bottom. */
function Bar({ sections, first, team }: BarProps) {
  const groups = Map.groupBy(sections, ([, { group }]) => group);
  const others = sections.filter(([, { isTab }]) => !isTab);
  const link = ([step, { label, icon }]: [string, Section]) => (
    <a href={href(`/${step}`)} aria-current={step === first ? "page" : undefined}>
      <Icon name={icon} />
      {label}
      {step === "webhooks" && <FailingDot />}
    </a>
  );
  return (
    <header class="bar">
      <a class="brand" href={href("/")}>
        <img src="/assets/icon.svg" alt="" width="28" height="28" />
        {team ? <TeamName team={team} /> : <strong>Stowage</strong>}
      </a>
      <button type="button" class="button palette-button" onClick={() => void togglePalette()}>
        <Icon name="search" />
        <span>Find…</span>
        <kbd>{PALETTE_KEYS}</kbd>
      </button>
      <nav aria-label="Sections">
        {[...groups].map(([group, members]) => (
          <div key={group} class="bar-group">
            <h2>{group}</h2>
            <ul>
              {members.map((entry) => (
                <li key={entry[0]} data-tab={entry[1].isTab}>
                  {link(entry)}
                </li>
              ))}
              {group === "Developers" && (
                <li>
                  <ReferenceLink />
                </li>
              )}
            </ul>
          </div>
        ))}
        <div class="bar-more">
          <Popover
            button={
              <>
                <Icon name="menu" />
                More
              </>
            }
            class={others.some(([step]) => step === first) ? "current" : ""}
          >
            {(close) => (
              // biome-ignore lint/a11y: the links in it handle the keys, which also click.
              <div class="menu" onClick={close}>
                {others.map((entry) => link(entry))}
                <ReferenceLink />
              </div>
            )}
          </Popover>
        </div>
      </nav>
      <AccountMenu team={team} />
    </header>
  );
}

/** The name of the team above that of the product. */
function TeamName({ team }: { team: SavedSession }) {
  const { value } = useTeam(team.id);
  useEffect(() => {
    trashDays.value = value?.trashDays;
    sendsEmail.value = value?.sendsEmail ?? false;
    if (value && lastTeam()?.id === value._id) rememberTeam({ id: value._id, name: value.name });
  }, [value]);
  return (
    <span class="brand-names">
      <strong>
        <bdi>{value?.name ?? "Stowage"}</bdi>
      </strong>
      {value && <span class="quiet">Stowage</span>}
    </span>
  );
}

const initialsOf = (name: string) =>
  name
    .split(/[\s@.]+/)
    .filter(Boolean)
    .slice(0, 2)
    .map((word) => [...word][0]?.toUpperCase())
    .join("");

function AccountMenu({ team }: { team: SavedSession | null }) {
  const name = team?.name ?? "Operator";
  const role = me.value?.role;
  return (
    <div class="account">
      {team && (
        <a class="account-name" href={href("/session")}>
          <span class="avatar" aria-hidden="true">
            {role ? initialsOf(name) : <Icon name="key" />}
          </span>
          <span>
            <bdi>{name}</bdi>
            <span class="quiet">{role ? ROLE_LABELS[role] : "API key"}</span>
          </span>
        </a>
      )}
      {!team && <span class="account-name">Operator</span>}
      <button type="button" class="button ghost" onClick={() => leave()}>
        Sign out
      </button>
    </div>
  );
}
