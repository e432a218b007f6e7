import { render } from "preact";
import "./styles/console.css";

render(<main>Console</main>, document.getElementById("page") as HTMLElement);
