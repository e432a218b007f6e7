import { render } from "preact";
import "../styles/reference.css";

render(<main>Reference</main>, document.getElementById("page") as HTMLElement);
