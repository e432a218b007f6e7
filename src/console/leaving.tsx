import { announce } from "./parts/announce.tsx";
import { askFirst } from "./parts/dialog.tsx";
import { messageOf } from "./parts/failure.tsx";
import { signOut } from "./session.ts";
import { forgetUnfinished } from "./uploads/queue.ts";
import { unfinished } from "./uploads/upload.ts";

async function signOutAloud(): Promise<void> {
  try {
    await signOut();
    announce("Signed out.");
  } catch (error) {
    announce(`Signed out here, but the key could not be revoked: ${messageOf(error)}`);
  }
}

/** Signs out. Where this browser keeps something of uploads that is asked first, and where `asked` is to be. */
export function leave(asked?: { title: string; text: string; action: string }): void {
  const count = unfinished.peek().length;
  if (count === 0 && !asked) return void signOutAloud();
  let isForgetting = false;
  askFirst({
    title: "Sign out with unfinished uploads?",
    action: "Sign out",
    isDangerous: asked !== undefined,
    ...asked,
    text: (
      <>
        {asked && <p>{asked.text}</p>}
        {count > 0 && (
          <>
            <p>
              {count === 1 ? "One upload is" : `${count} uploads are`} not finished. This browser keeps what is needed
              to go on for 24 hours: sign in again as you did today, and they go on from where they are.
            </p>
            <label>
              <input
                type="checkbox"
                onChange={({ currentTarget }) => {
                  isForgetting = currentTarget.checked;
                }}
              />{" "}
              Forget them
            </label>
          </>
        )}
      </>
    ),
    onConfirm: () => {
      if (isForgetting) forgetUnfinished();
      return signOutAloud();
    },
  });
}
