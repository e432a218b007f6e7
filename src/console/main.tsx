import { render } from "preact";
import { followEvents } from "./live.ts";
import { followLinks } from "./router.ts";
import { Shell } from "./shell.tsx";
import { reloadOnReturn } from "./token.ts";
import "./styles/console.css";
import { followProcessing } from "./uploads/processing.ts";
import { followQueue } from "./uploads/queue.ts";

reloadOnReturn();
followLinks();
followEvents();
followQueue();
followProcessing();
render(<Shell />, document.getElementById("page") as HTMLElement);
