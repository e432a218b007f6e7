import { render } from "preact";
import { followEvents } from "./live.ts";
import { followLinks } from "./router.ts";
import { client, noteFailure, refreshMe } from "./session.ts";
import { Shell } from "./shell.tsx";
import { startPlayback } from "./sound/playback.ts";
import { reloadOnReturn } from "./token.ts";
import "./styles/console.css";
import { followProcessing } from "./uploads/processing.ts";
import { startQueue } from "./uploads/queue.ts";

reloadOnReturn();
followLinks();
followEvents();
startQueue();
followProcessing();
startPlayback();
// A saved session may be older than a change of the user's role.
refreshMe().catch((error) => noteFailure(error, client.peek()));
render(<Shell />, document.getElementById("page") as HTMLElement);
