import { stateOf, takeOf } from "./element-state.ts";
import type { UploadRunner } from "./upload-runner.ts";

/** A form that waits until all files are uploaded. */
export class Submission {
  readonly #uploads: UploadRunner<null>;
  #due: { form: HTMLFormElement; submitter: HTMLElement | null } | undefined;

  constructor(uploads: UploadRunner<null>) {
    this.#uploads = uploads;
  }

  get isDue(): boolean {
    return this.#due !== undefined;
  }

  /** Stops the event of a form that has to wait. Other listeners of the page get the event that follows. */
  defer(event: SubmitEvent): void {
    if (["empty", "stored", "completed"].includes(this.#state)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    this.#due = { form: event.target as HTMLFormElement, submitter: event.submitter };
    this.update();
  }

  /** Takes the next step: a recording is stopped, then sent. A file that can't be uploaded is left to the user. */
  update(): void {
    const due = this.#due;
    if (!due) return;
    const take = takeOf(this.#uploads.items);
    const state = this.#state;
    if (take?.state === "recorded") this.#uploads.send({ type: "send", key: take.key });
    else if (take?.runs === "record") this.#uploads.send({ type: "stop", key: take.key });
    if (take || state === "sending" || state === "waiting") return;
    this.#due = undefined;
    // If a file has failed, the browser shows where, and the form is not submitted.
    due.form.requestSubmit(due.submitter?.isConnected ? due.submitter : null);
  }

  get #state() {
    return stateOf(this.#uploads.items);
  }
}
