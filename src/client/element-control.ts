// A server that renders the page may import the module, too.
const Base = globalThis.HTMLElement ?? (class {} as typeof HTMLElement);

const DEFAULT_BITRATE = 64_000;

/**
 * A control of a form. Its attributes are also properties, which frameworks such as React and Vue set, and it says whether
 * the form can be submitted.
 */
export class FormControl extends Base {
  static readonly formAssociated = true;

  readonly #internals = this.attachInternals();

  /** The URL of the service. */
  get url(): string {
    return this.getAttribute("url") ?? "";
  }

  set url(url: string | null | undefined) {
    this.#reflect("url", url);
  }

  /** An upload token or public key. See also `getToken`. */
  get token(): string {
    return this.getAttribute("token") ?? "";
  }

  set token(token: string | null | undefined) {
    this.#reflect("token", token);
  }

  /** The name under which the form submits the ids of the files. */
  get name(): string {
    return this.getAttribute("name") ?? "";
  }

  set name(name: string | null | undefined) {
    this.#reflect("name", name);
  }

  /** Who uses the device, such as an ID of your server. The browser keeps files and recordings for them alone. */
  get visitor(): string {
    return this.getAttribute("visitor") ?? "";
  }

  set visitor(visitor: string | null | undefined) {
    this.#reflect("visitor", visitor);
  }

  /** Whether the form is invalid without a file. */
  get required(): boolean {
    return this.hasAttribute("required");
  }

  set required(isRequired: boolean) {
    this.toggleAttribute("required", Boolean(isRequired));
  }

  /** Whether the user can add nothing. */
  get disabled(): boolean {
    return this.hasAttribute("disabled");
  }

  set disabled(isDisabled: boolean) {
    this.toggleAttribute("disabled", Boolean(isDisabled));
  }

  /** Whether there is a button that records. */
  get record(): boolean {
    return this.hasAttribute("record");
  }

  set record(isShown: boolean) {
    this.toggleAttribute("record", Boolean(isShown));
  }

  /** The bits per second of recordings. Speech in one channel needs no more than the default. */
  get bitrate(): number {
    return Number(this.getAttribute("bitrate")) || DEFAULT_BITRATE;
  }

  set bitrate(bitrate: number | null | undefined) {
    this.#reflect("bitrate", bitrate ? String(bitrate) : null);
  }

  /** Whether there may be several files. */
  get multiple(): boolean {
    return this.hasAttribute("multiple");
  }

  set multiple(isMultiple: boolean) {
    this.toggleAttribute("multiple", Boolean(isMultiple));
  }

  /** Whether the form can be submitted before all files are uploaded, and waits for them. */
  get deferSubmit(): boolean {
    return this.hasAttribute("defer-submit");
  }

  set deferSubmit(isDeferred: boolean) {
    this.toggleAttribute("defer-submit", Boolean(isDeferred));
  }

  /** The form that submits the ids. */
  get form(): HTMLFormElement | null {
    return this.#internals.form;
  }

  /** The reason why the form is invalid. */
  get validity(): ValidityState {
    return this.#internals.validity;
  }

  /** The next step of the user before the form can be submitted. Empty if nothing. */
  get validationMessage(): string {
    return this.#internals.validationMessage;
  }

  /** Whether the form asks for the validity: not while the element is disabled. */
  get willValidate(): boolean {
    return this.#internals.willValidate;
  }

  /** Whether the form can be submitted. If not, the element gets the event `invalid`. */
  checkValidity(): boolean {
    return this.#internals.checkValidity();
  }

  /** Whether the form can be submitted. If not, the browser shows the `validationMessage` at a button. */
  reportValidity(): boolean {
    return this.#internals.reportValidity();
  }

  /** Takes over properties that a framework has set before the element was defined: they hide those of the class. */
  protected upgrade(): void {
    for (const [name, value] of Object.entries(this)) {
      if (!(name in Object.getPrototypeOf(this))) continue;
      Reflect.deleteProperty(this, name);
      Reflect.set(this, name, value);
    }
  }

  /** Sets what the form submits. */
  protected submits(values: FormData | null): void {
    this.#internals.setFormValue(values);
  }

  /** Sets what makes the form invalid. @param anchor where the browser shows the message */
  protected validate(flags: ValidityStateFlags, message?: string, anchor?: HTMLElement): void {
    this.#internals.setValidity(flags, message, anchor);
  }

  #reflect(name: string, value: string | null | undefined): void {
    if (value === null || value === undefined) this.removeAttribute(name);
    else this.setAttribute(name, value);
  }
}
