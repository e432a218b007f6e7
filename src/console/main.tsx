import { render } from "preact";
import { followFocus } from "./framework/focus.ts";
import { followEvents } from "./framework/live.ts";
import { followLinks } from "./framework/router.ts";
import { adoptSession, client, isExpired, noteFailure, refreshMe, session } from "./framework/session.ts";
import { followStore } from "./framework/store.ts";
import { reloadOnReturn, shareSession } from "./framework/token.ts";
import { Shell } from "./shell.tsx";
import { followShortcuts } from "./shortcuts.tsx";
import { followPlayerKeys } from "./sound/player-state.ts";

reloadOnReturn();
followLinks();
shareSession(() => (isExpired.peek() ? null : (session.peek()?.team ?? null)));
void adoptSession();
followEvents();
followStore();
followPlayerKeys();
followShortcuts();
// A saved session may be older than a change of the user's role.
refreshMe().catch((error) => noteFailure(error, client.peek()));
const page = document.getElementById("page") as HTMLElement;
followFocus(page);
render(<Shell />, page);
