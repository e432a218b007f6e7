import { render } from "preact";
import { followEvents } from "./live.ts";
import { followLinks } from "./router.ts";
import { Shell } from "./shell.tsx";
import "./styles/console.css";

followLinks();
followEvents();
render(<Shell />, document.getElementById("page") as HTMLElement);
