import type { ComponentType } from "preact";
import { isLive } from "./live.ts";
import { EventPage } from "./pages/event.tsx";
import { Events } from "./pages/events.tsx";
import { FilePage } from "./pages/file.tsx";
import { Files } from "./pages/files.tsx";
import { Keys } from "./pages/keys.tsx";
import { NotFound } from "./pages/not-found.tsx";
import { SignIn } from "./pages/sign-in.tsx";
import { Usage } from "./pages/usage.tsx";
import { Users } from "./pages/users.tsx";
import { WebhookPage } from "./pages/webhook.tsx";
import { Webhooks } from "./pages/webhooks.tsx";
import { Announcements, announce } from "./parts/announce.tsx";
import { askFirst, Questions } from "./parts/dialog.tsx";
import { messageOf } from "./parts/failure.tsx";
import { href, steps } from "./router.ts";
import { hasEnded, session, signOut } from "./session.ts";
import { DropZone } from "./uploads/dropping.tsx";
import { Tray } from "./uploads/tray.tsx";
import { unfinished } from "./uploads/upload.ts";

interface Section {
  label: string;
  /** By the number of steps behind its own: the list, and one thing of it. */
  pages: ComponentType<{ id: string }>[];
}

/** By the first step of the address. */
const TEAM_SECTIONS: Record<string, Section> = {
  files: { label: "Files", pages: [Files, FilePage] },
  keys: { label: "Keys", pages: [Keys] },
  users: { label: "Users", pages: [Users] },
  events: { label: "Events", pages: [Events, EventPage] },
  webhooks: { label: "Webhooks", pages: [Webhooks, WebhookPage] },
  usage: { label: "Usage", pages: [Usage] },
};
const OPERATOR_SECTIONS: Record<string, Section> = { keys: { label: "Keys", pages: [Keys] } };

export function Shell() {
  const current = session.value;
  const isSignedIn = current !== null && !hasEnded.value;
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      {isSignedIn ? (
        <Workplace sections={current.team ? TEAM_SECTIONS : OPERATOR_SECTIONS} team={current.team?.id} />
      ) : (
        <>
          <header class="bar">
            <Brand />
          </header>
          <SignIn />
        </>
      )}
      <Questions />
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

function Workplace({ sections, team }: { sections: Record<string, Section>; team: string | undefined }) {
  const [first = Object.keys(sections)[0] ?? "", ...rest] = steps.value;
  const Shown = sections[first]?.pages[rest.length] ?? NotFound;
  const leave = async () => {
    try {
      await signOut();
      announce("Signed out.");
    } catch (error) {
      announce(`Signed out here, but the key could not be revoked: ${messageOf(error)}`);
    }
  };
  const askToLeave = () => {
    const count = unfinished.value.length;
    if (count === 0) return leave();
    askFirst({
      title: "Sign out while files are being uploaded?",
      text: `${count === 1 ? "One upload is" : `${count} uploads are`} not finished. This browser keeps what is needed to go on for 24 hours: sign in to this team again, and they go on from where they are. To keep nothing, cancel them first.`,
      action: "Sign out",
      isDangerous: false,
      onConfirm: leave,
    });
  };
  return (
    <div class="workplace">
      <header class="bar">
        <Brand />
        <nav aria-label="Sections">
          <ul>
            {Object.entries(sections).map(([step, { label }]) => (
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
              Team <code>{team}</code>
            </p>
          ) : (
            <p>Operator</p>
          )}
          <button type="button" class="button small" onClick={askToLeave}>
            Sign out
          </button>
        </div>
      </header>
      <div class="place">
        <main id="content" tabIndex={-1}>
          {team && !isLive.value && <p class="visually-hidden">Connecting …</p>}
          <Shown key={steps.value.join("/")} id={rest.join("/")} />
        </main>
        <Tray />
      </div>
      {team && <DropZone />}
    </div>
  );
}
