import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import { messageOf } from "../parts/failure.tsx";
import { checkToken } from "../token.ts";
import { type Call, exampleBody, exampleOf, prepareCall } from "./call.ts";
import type { Operation, Schema } from "./document.ts";
import { exampleFields, Input, jsonOf } from "./inputs.tsx";
import { AsCurl, type Outcome, Result } from "./outcome.tsx";
import { send } from "./sending.ts";
import { TokenField, token } from "./token.tsx";

type Values = Signal<Record<string, string>>;

/** What has to be there, so that only ids and the like are left to fill in. */
function firstValues({ parameters }: Operation): Record<string, string> {
  const given = parameters.filter((parameter) => parameter.required && parameter.in === "header");
  return Object.fromEntries(given.map((parameter) => [`header.${parameter.name}`, exampleOf(parameter.schema)]));
}

/** Whether it takes away what nobody gives back. */
const isDestructive = ({ method, headers, body }: Call) =>
  method === "DELETE" ||
  Object.values(headers).includes("DELETE") ||
  (body?.kind === "json" && /"revokeOld"\s*:\s*true/.test(body.text));

/** A form that calls the operation, with what is sent and what comes back. */
export function TryIt({ operation }: { operation: Operation }) {
  const { parameters, body, tokens, summary } = operation;
  const values: Values = useSignal(firstValues(operation));
  const fields: Values = useSignal(exampleFields(body?.example));
  const properties = body?.object?.properties ?? {};
  /** Null while the body is made of fields. */
  const json = useSignal<string | null>(null);
  const file = useSignal<File | undefined>(undefined);
  const outcome = useSignal<Outcome | null>(null);
  const stop = useRef<AbortController | null>(null);
  useEffect(() => () => stop.current?.abort(), []);

  const call = (): Call => {
    const example = exampleBody(body);
    if (example?.kind !== "json") {
      return prepareCall(operation, values.value, example && { ...example, file: file.value });
    }
    const text = json.value ?? jsonOf(properties, fields.value);
    const isLeftOut = !body?.isRequired && ["", "{}"].includes(text.trim());
    return prepareCall(operation, values.value, isLeftOut ? undefined : { kind: "json", text });
  };

  const fail = (error: unknown) => {
    outcome.value = { kind: "failed", message: messageOf(error) };
  };

  const run = async (isSure: boolean) => {
    if (outcome.value?.kind === "sending") return;
    const controller = new AbortController();
    try {
      const prepared = call();
      if (prepared.needsToken) checkToken(token.value);
      if (isDestructive(prepared) && !isSure) {
        outcome.value = { kind: "asking" };
        return;
      }
      stop.current = controller;
      outcome.value = { kind: "sending" };
      outcome.value = { kind: "answer", answer: await send(prepared, token.value, controller.signal) };
    } catch (error) {
      if (controller.signal.aborted) outcome.value = null;
      else fail(error);
    }
  };

  return (
    <form
      class="try-it"
      aria-label={`Try: ${summary}`}
      onSubmit={(event) => {
        event.preventDefault();
        run(false);
      }}
    >
      {tokens.length > 0 && <TokenField />}
      {parameters.map(({ in: place, name, schema, required = false }) => (
        <Input
          key={`${place}.${name}`}
          name={name}
          schema={schema}
          isRequired={required}
          value={values.value[`${place}.${name}`] ?? ""}
          onValue={(value) => {
            values.value = { ...values.value, [`${place}.${name}`]: value };
          }}
        />
      ))}
      {body?.mediaType === "application/json" && (
        <JsonBody schema={body.object} fields={fields} json={json} onFailure={fail} />
      )}
      {body && body.mediaType !== "application/json" && <FileInput file={file} isRequired={body.isRequired} />}
      <Actions
        outcome={outcome}
        onSure={() => run(true)}
        onStop={() => stop.current?.abort()}
        method={operation.method}
      />
      <AsCurl call={call} summary={summary} />
      <Result outcome={outcome.value} summary={summary} />
    </form>
  );
}

function JsonBody({
  schema,
  fields,
  json,
  onFailure,
}: {
  schema: Schema | undefined;
  fields: Values;
  json: Signal<string | null>;
  onFailure: (error: unknown) => void;
}) {
  const id = useId();
  const { properties = {}, required = [] } = schema ?? {};
  const isJson = json.value !== null;
  return (
    <fieldset class="body">
      <legend>Body</legend>
      <label class="switch">
        <input
          type="checkbox"
          checked={isJson}
          onChange={() => {
            try {
              json.value = isJson ? null : jsonOf(properties, fields.value);
            } catch (error) {
              onFailure(error);
            }
          }}
        />
        As JSON
      </label>
      {json.value === null ? (
        Object.entries(properties).map(([name, property]) => (
          <Input
            key={name}
            name={name}
            schema={property}
            isRequired={required.includes(name)}
            value={fields.value[name] ?? ""}
            onValue={(value) => {
              fields.value = { ...fields.value, [name]: value };
            }}
          />
        ))
      ) : (
        <div class="field">
          <label for={id}>JSON</label>
          <textarea
            id={id}
            rows={8}
            spellcheck={false}
            value={json.value}
            onInput={(event) => {
              json.value = event.currentTarget.value;
            }}
          />
        </div>
      )}
    </fieldset>
  );
}

function FileInput({ file, isRequired }: { file: Signal<File | undefined>; isRequired: boolean }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{isRequired ? "File" : "File, or a piece of one"}</label>
      <input
        id={id}
        type="file"
        required={isRequired}
        onChange={(event) => {
          file.value = event.currentTarget.files?.[0];
        }}
      />
    </div>
  );
}

function Actions({
  outcome,
  onSure,
  onStop,
  method,
}: {
  outcome: Signal<Outcome | null>;
  onSure: () => void;
  onStop: () => void;
  method: string;
}) {
  const kind = outcome.value?.kind;
  const cancel = useRef<HTMLButtonElement>(null);
  const submit = useRef<HTMLButtonElement>(null);
  const hasAsked = useRef(false);
  useEffect(() => {
    if (kind === "asking") cancel.current?.focus();
    else if (hasAsked.current) submit.current?.focus();
    hasAsked.current = kind === "asking";
  }, [kind]);
  if (kind === "asking") {
    return (
      <div class="notice" role="alertdialog" aria-label="Are you sure?">
        <p>This can't be taken back.</p>
        <div class="actions">
          <button
            ref={cancel}
            type="button"
            class="button"
            onClick={() => {
              outcome.value = null;
            }}
          >
            Cancel
          </button>
          <button type="button" class="button danger" onClick={onSure}>
            Send {method}
          </button>
        </div>
      </div>
    );
  }
  return (
    <div class="actions">
      <button ref={submit} type="submit" class="button primary" aria-disabled={kind === "sending"}>
        Send
      </button>
      {kind === "sending" && (
        <button
          type="button"
          class="button"
          onClick={() => {
            submit.current?.focus();
            onStop();
          }}
        >
          Stop
        </button>
      )}
    </div>
  );
}
