import { useEffect } from "preact/hooks";
import { addShortcuts } from "../framework/keys.ts";
import { script } from "../framework/script.tsx";
import { close, pageTrack, track } from "./player-state.ts";

const player = script(() => import("./player.tsx"));

const PlayerBar = player.view(
  ({ PlayerBar }) => PlayerBar,
  ({ failure }) =>
    failure && (
      <section class="player-bar" aria-label="Player">
        {failure}
        <button type="button" class="button ghost" onClick={close}>
          Close
        </button>
      </section>
    ),
);

/** The place of the player on every page, while a file is open in it, except on the page of that file. */
export function PlayerPlace() {
  useEffect(
    () =>
      addShortcuts({
        c: () => {
          // As the space bar, it is about the file of the page.
          const file = pageTrack.peek() ?? track.peek();
          if (file) player.use(({ copyTeamLink }) => copyTeamLink(file));
        },
      }),
    [],
  );
  const file = track.value;
  if (!file || pageTrack.value?._id === file._id) return null;
  return <PlayerBar file={file} />;
}
