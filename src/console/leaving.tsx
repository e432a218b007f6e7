import { announce } from "./parts/announce.tsx";
import { confirmFirst } from "./parts/dialog.tsx";
import { messageOf } from "./parts/failure.tsx";
import { countOf } from "./parts/format.ts";
import { signOut } from "./session.ts";
import { discardUnfinished } from "./uploads/queue.ts";
import { unfinishedUploads } from "./uploads/upload.ts";

async function signOutAndAnnounce(): Promise<void> {
  try {
    await signOut();
    announce("Signed out");
  } catch (error) {
    announce(`You're signed out, but the session couldn't be ended: ${messageOf(error)}`);
  }
}

/** Signs out. Asks first if uploads are unfinished, or if the caller passes a question. */
export function leave(question?: { title: string; text: string; action: string }): void {
  const count = unfinishedUploads().length;
  if (count === 0 && !question) return void signOutAndAnnounce();
  let isDiscarding = false;
  confirmFirst({
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
              that is already stored. If you sign in to the same account within 24 hours, {count === 1 ? "it" : "they"}{" "}
              can start over.
            </p>
            <label>
              <input
                type="checkbox"
                onChange={({ currentTarget }) => {
                  isDiscarding = currentTarget.checked;
                }}
              />{" "}
              Discard unfinished uploads
            </label>
          </>
        )}
      </>
    ),
    onConfirm: () => {
      if (isDiscarding) discardUnfinished();
      return signOutAndAnnounce();
    },
  });
}
