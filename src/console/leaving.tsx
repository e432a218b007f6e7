import { effect } from "@preact/signals";
import { announce } from "./framework/announce.tsx";
import { confirm } from "./framework/dialog.tsx";
import { messageOf } from "./framework/errors.ts";
import { href } from "./framework/router.ts";
import { signOut } from "./framework/session.ts";
import { countOf } from "./parts/format.ts";
import { uploading } from "./uploads/later.tsx";

/** Resolves once no upload is being sent. Until then, the browser would ask whether to leave the page. */
const untilIdle = () =>
  new Promise<void>((resolve) => {
    const stop = effect(() => {
      if ((uploading.loaded.value?.sendingCount.value ?? 0) > 0) return;
      resolve();
      queueMicrotask(() => stop());
    });
  });

/** Ends the session and reloads the page, so that no data stays in memory for the next user. */
async function signOutAndReload(): Promise<void> {
  let notice = "Signed out";
  try {
    await signOut();
  } catch (error) {
    notice = `You're signed out, but the session couldn't be ended: ${messageOf(error)}`;
  }
  await untilIdle();
  history.replaceState({ notice }, "", href("/"));
  location.reload();
}

/** Announces how the last session of this tab ended. */
export function announceSignOut(): void {
  const { notice } = (history.state ?? {}) as { notice?: string };
  if (!notice) return;
  history.replaceState(null, "", location.href);
  announce(notice);
}

/** Signs out. Asks first if uploads are unfinished, or if the caller passes a question. */
export function leave(question?: { title: string; text: string; action: string }): void {
  // Until it is loaded, this tab has begun no upload. Those that it has saved before stay on the device, as if the user keeps them.
  const uploads = uploading.loaded.peek();
  const count = uploads?.unfinishedUploads().length ?? 0;
  if (count === 0 && !question) return void signOutAndReload();
  void confirm({
    title: "Sign out with unfinished uploads?",
    action: "Sign out",
    isDangerous: question !== undefined,
    ...question,
    text: (
      <>
        {question && <p>{question.text}</p>}
        {count > 0 && (
          <>
            <p>
              {countOf(count, "upload")} {count === 1 ? "hasn't" : "haven't"} finished. Signing out deletes the part
              that is already stored.
            </p>
            <label>
              <input type="checkbox" name="keep" /> Keep {count === 1 ? "it" : "them"} on this device for 24 hours, so
              that you can start over after signing in again
            </label>
          </>
        )}
      </>
    ),
    run: (form) => {
      if (!new FormData(form).has("keep")) uploads?.discardUnfinished();
      return signOutAndReload();
    },
  });
}
