import { render } from "preact";
import { followEvents } from "./live.ts";
import { followLinks } from "./router.ts";
import { Shell } from "./shell.tsx";
import "./styles/console.css";
import { followProcessing } from "./uploads/processing.ts";
import { followQueue } from "./uploads/queue.ts";

// A page that "back" brings to life again would have its token still, whoever is there by now.
addEventListener("pageshow", (event) => event.persisted && location.reload());
followLinks();
followEvents();
followQueue();
followProcessing();
render(<Shell />, document.getElementById("page") as HTMLElement);
