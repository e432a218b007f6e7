import { render } from "preact";
import { followEvents } from "./live.ts";
import { followFocus } from "./parts/focus.ts";
import { followLinks } from "./router.ts";
import { adoptSession, client, isExpired, noteFailure, refreshMe, session } from "./session.ts";
import { Shell } from "./shell.tsx";
import { followShortcuts } from "./shortcuts.tsx";
import { startSignedPlayback } from "./sound/signed-playback.ts";
import { followStore } from "./store.ts";
import { reloadOnReturn, shareSession } from "./token.ts";
import { followProcessing } from "./uploads/processing.ts";
import { startQueue } from "./uploads/queue.ts";

reloadOnReturn();
followLinks();
shareSession(() => (isExpired.peek() ? null : (session.peek()?.team ?? null)));
void adoptSession();
followEvents();
followStore();
startQueue();
followProcessing();
startSignedPlayback();
followShortcuts();
// A saved session may be older than a change of the user's role.
refreshMe().catch((error) => noteFailure(error, client.peek()));
const page = document.getElementById("page") as HTMLElement;
followFocus(page);
render(<Shell />, page);
