import {
  type BodyKind,
  bodyKindOf,
  bodyTypeOf,
  needsToken,
  type OpenApi,
  type Parameter,
  type Route,
  routesOf,
} from "./document.ts";
import { curlOf, formatJson, type SampleRequest } from "./samples.ts";

/*
 * A form for each operation that sends a request to this service. The forms are made from /openapi.json when the first one
 * is opened. The token is a variable of this page, so it is gone once the page is reloaded or left.
 */

let token = "";
let routes: Promise<Map<string, Route>> | undefined;

async function loadRoutes(): Promise<Map<string, Route>> {
  const response = await fetch("/openapi.json");
  if (!response.ok) throw new Error(`openapi.json: ${response.status}`);
  const found = routesOf((await response.json()) as OpenApi);
  return new Map(found.map((route) => [route.operation.operationId, route]));
}

type Children = (Node | string)[];

function make<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  properties: Partial<HTMLElementTagNameMap[Name]> = {},
  ...children: Children
): HTMLElementTagNameMap[Name] {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

let fields = 0;

/** A labeled control. `where` is the part of the request that it sets. */
function field(name: string, control: Control, { where = "", hint = "" } = {}): HTMLElement {
  fields += 1;
  control.id = `field-${fields}`;
  const notes = [where, control.required && "required"].filter(Boolean).join(", ");
  const label = make("label", { htmlFor: control.id }, name, " ", make("span", { className: "type" }, notes));
  const parts: Children = [label, control];
  if (hint) {
    const text = make("p", { className: "hint", id: `hint-${fields}` }, hint);
    control.setAttribute("aria-describedby", text.id);
    parts.push(text);
  }
  return make("div", { className: "field" }, ...parts);
}

function controlOf({ schema, required = false, in: where }: Parameter): Control {
  // An optional parameter with one value, such as `keepKeys=true`, is the user's choice.
  const only = schema.const !== undefined && !required ? [schema.const] : undefined;
  const values = schema.type === "boolean" ? [true, false] : (schema.enum ?? only);
  if (values) {
    const options = values.map((value) => make("option", {}, String(value)));
    return make("select", { required }, make("option", { value: "" }, ""), ...options);
  }
  // A required header, such as a version, has one value that works.
  const value = schema.const ?? (required && where === "header" ? schema.example : undefined);
  const isNumber = schema.type === "integer" || schema.type === "number";
  return make("input", {
    required,
    autocomplete: "off",
    spellcheck: false,
    value: String(value ?? ""),
    ...(isNumber && { inputMode: "numeric" }),
  });
}

interface Draft {
  path: string;
  headers: Record<string, string>;
  body?: string | FormData | File;
  sample: SampleRequest;
}

interface Fields {
  parameters: [Parameter, Control][];
  kind: BodyKind;
  /** The text of a JSON body, or of the form's part `properties`. */
  text?: HTMLTextAreaElement;
  file?: HTMLInputElement;
  /** The media type of the body. */
  type: string;
}

/** The request that the fields describe. */
function draftOf({ method, path, operation }: Route, { parameters, kind, text, file, type }: Fields): Draft {
  const query = new URLSearchParams();
  const headers: Record<string, string> = {};
  let url = path;
  for (const [{ name, in: where }, { value }] of parameters) {
    if (value === "") continue;
    if (where === "path") url = url.replace(`{${name}}`, encodeURIComponent(value));
    else if (where === "query") query.set(name, value);
    else headers[name] = value;
  }
  if (query.size > 0) url += `?${query}`;
  const base = { method, url: location.origin + url, hasToken: needsToken(operation) };
  const chosen = file?.files?.[0];
  const name = chosen?.name ?? "FILE";
  if (kind === "json" && text && (text.value || text.required)) {
    const json = text.value;
    return {
      path: url,
      headers: { ...headers, "Content-Type": type },
      body: json,
      sample: { ...base, headers, body: { kind, text: json } },
    };
  }
  if (kind === "form") {
    const body = new FormData();
    const fields: Record<string, string> = text?.value ? { properties: text.value } : {};
    for (const [key, value] of Object.entries(fields)) body.append(key, value);
    if (chosen) body.append("file", chosen);
    return { path: url, headers, body, sample: { ...base, headers, body: { kind, fields, file: name } } };
  }
  if (kind === "bytes" && chosen) {
    const typed = { ...headers, "Content-Type": type };
    return { path: url, headers: typed, body: chosen, sample: { ...base, headers: typed, body: { kind, file: name } } };
  }
  return { path: url, headers, sample: { ...base, headers } };
}

const SHOWN_HEADERS = ["location", "link", "etag", "retry-after", "upload-offset", "x-request-id"];
/** Longer text would make the page slow. */
const MAX_SHOWN_CHARACTERS = 100_000;

async function bodyText(response: Response): Promise<string> {
  const type = response.headers.get("Content-Type") ?? "";
  if (/json|^text\//.test(type)) {
    const text = await response.text();
    // A response to HEAD has the type and no body.
    return text && /json/.test(type) ? formatJson(JSON.parse(text)) : text;
  }
  const { size } = await response.blob();
  return size > 0 ? `${size.toLocaleString("en")} bytes of ${type || "unknown type"}` : "";
}

async function showResponse(response: Response, status: HTMLElement, result: HTMLElement): Promise<void> {
  const headers = SHOWN_HEADERS.flatMap((name) => {
    const value = response.headers.get(name);
    return value === null ? [] : [`${name}: ${value}`];
  });
  const text = (await bodyText(response)).slice(0, MAX_SHOWN_CHARACTERS);
  status.textContent = `Response ${response.status}`;
  status.className = response.ok ? "good" : "bad";
  result.textContent = [headers.join("\n"), text].filter(Boolean).join("\n\n");
  result.hidden = false;
}

function tokenField(): HTMLElement {
  const input = make("input", { type: "password", autocomplete: "off", spellcheck: false, value: token });
  input.className = "token";
  input.addEventListener("input", () => {
    token = input.value.trim();
    // Every open form has the same token.
    for (const other of document.querySelectorAll<HTMLInputElement>("input.token"))
      if (other !== input) other.value = token;
  });
  return field("Token", input, { hint: "Used by every form on this page, and forgotten when you reload or leave it." });
}

function fieldsOf({ operation }: Route): { fields: Fields; elements: HTMLElement[] } {
  const parameters = (operation.parameters ?? []).map((one): [Parameter, Control] => [one, controlOf(one)]);
  const inputs = parameters.map(([{ name, in: where }, control]) => field(name, control, { where }));
  const elements: HTMLElement[] = inputs.length > 0 ? [make("div", { className: "parameters" }, ...inputs)] : [];
  const kind = bodyKindOf(operation);
  const type = bodyTypeOf(operation);
  const fields: Fields = { parameters, kind, type };
  const required = operation.requestBody?.required ?? false;
  if (kind === "json") {
    const example = formatJson(operation.requestBody?.content[type]?.example ?? {});
    const rows = Math.min(example.split("\n").length + 1, 16);
    fields.text = make("textarea", { required, rows, value: example, spellcheck: false });
    elements.push(field("Body", fields.text, { where: type }));
  }
  if (kind === "form") {
    fields.text = make("textarea", { rows: 3, spellcheck: false });
    elements.push(field("properties", fields.text, { hint: "JSON with name, folder, reference, tags or metadata." }));
  }
  if (kind === "form" || kind === "bytes") {
    fields.file = make("input", { type: "file", required });
    elements.push(field("File", fields.file));
  }
  return { fields, elements };
}

function formFor(route: Route): HTMLElement {
  const { fields, elements } = fieldsOf(route);
  const curl = make("code");
  const status = make("p", { role: "status" });
  // It scrolls, so the keyboard must reach it.
  const result = make("pre", { hidden: true, className: "result", tabIndex: 0, role: "region", ariaLabel: "Response" });
  const send = make("button", { type: "submit", className: "button primary" }, "Send request");
  const form = make("form", { className: "try", ariaLabel: `Try: ${route.operation.summary}` });
  if (needsToken(route.operation)) form.append(tokenField());
  form.append(...elements, make("pre", {}, curl), send, status, result);
  const showCurl = () => {
    curl.textContent = curlOf(draftOf(route, fields).sample);
  };
  form.addEventListener("input", showCurl);
  showCurl();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { path, headers, body } = draftOf(route, fields);
    if (token && needsToken(route.operation)) headers.Authorization = `Bearer ${token}`;
    send.disabled = true;
    status.className = "";
    status.textContent = "Sending…";
    result.hidden = true;
    try {
      await showResponse(
        await fetch(path, { method: route.method, headers, ...(body !== undefined && { body }) }),
        status,
        result,
      );
    } catch (error) {
      status.className = "bad";
      status.textContent = `The request failed: ${error instanceof Error ? error.message : error}`;
    }
    send.disabled = false;
  });
  return form;
}

/** Adds a button to each operation that opens its form. */
export function addTries(): void {
  for (const article of document.querySelectorAll<HTMLElement>(".operation:has(.samples)")) {
    const button = make("button", { type: "button", className: "button small", ariaExpanded: "false" }, "Try it");
    let form: HTMLElement | undefined;
    button.addEventListener("click", async () => {
      const isOpening = button.ariaExpanded === "false";
      if (isOpening && !form) {
        routes ??= loadRoutes();
        try {
          const route = (await routes).get(article.id);
          if (!route) return;
          form ??= formFor(route);
          article.querySelector(".samples")?.after(form);
        } catch (error) {
          // The next click loads it again.
          routes = undefined;
          button.textContent = `Try again. The form could not be loaded: ${error instanceof Error ? error.message : error}`;
          return;
        }
      }
      button.textContent = isOpening ? "Close form" : "Try it";
      button.ariaExpanded = String(isOpening);
      if (form) form.hidden = !isOpening;
      if (isOpening) form?.querySelector<HTMLElement>("input, select, textarea, button")?.focus();
    });
    article.querySelector(".languages")?.append(button);
  }
}
