import { useSignal } from "@preact/signals";
import { jsonText } from "./call.ts";
import {
  type Group,
  type Operation,
  type OperationResponse,
  type Parameter,
  type RequestBody,
  words,
} from "./document.ts";
import { Method } from "./navigation.tsx";
import { Part } from "./parts.tsx";
import { Code, Prose } from "./prose.tsx";
import { Samples } from "./samples.tsx";
import { BodySchema, Field, Fields } from "./schema.tsx";
import { TryIt } from "./try-it.tsx";

const PLACES: [Parameter["in"], string][] = [
  ["path", "Path"],
  ["query", "Query"],
  ["header", "Headers"],
];

export function OperationGroup({ id, title, text, operations, all }: Group & { all: Operation[] }) {
  return (
    <section id={id} tabIndex={-1} data-part aria-labelledby={`title-${id}`} class="group">
      <header class="group-header">
        <h2 id={`title-${id}`}>{title}</h2>
        <Prose text={text} />
      </header>
      {operations.map((operation) => (
        <Part key={operation.id} place={all.indexOf(operation)}>
          <OperationPart operation={operation} all={all} />
        </Part>
      ))}
    </section>
  );
}

function OperationPart({ operation, all }: { operation: Operation; all: Operation[] }) {
  const { id, method, path, summary, description, tokens, parameters, body, responses } = operation;
  const isTried = useSignal(false);
  return (
    <article id={id} tabIndex={-1} data-part aria-labelledby={`title-${id}`} class="operation">
      <div class="told">
        <h3 id={`title-${id}`}>
          <a href={`#${id}`}>{summary}</a>
        </h3>
        <p class="route">
          <Method name={method} /> <code>{path}</code>
        </p>
        <Prose text={description} />
        <p class="tokens">
          Token:{" "}
          {tokens.length === 0
            ? "none"
            : tokens.map((name, place) => [place > 0 && " or ", <a href="#authentication">{words(name)}</a>])}
        </p>
        <button
          type="button"
          class="button try"
          aria-label={`Try it: ${summary}`}
          aria-expanded={isTried.value}
          onClick={() => {
            isTried.value = !isTried.value;
          }}
        >
          Try it
        </button>
        {isTried.value && <TryIt operation={operation} />}
        {PLACES.map(([place, title]) => (
          <Parameters
            key={place}
            id={id}
            title={title}
            parameters={parameters.filter((parameter) => parameter.in === place)}
          />
        ))}
        {body && <BodyPart id={id} body={body} />}
        <h4>Responses</h4>
        <ul class="responses">
          {responses.map((response) => (
            <li key={response.status}>
              <ResponsePart {...response} />
            </li>
          ))}
        </ul>
      </div>
      <Samples operation={operation} all={all} />
    </article>
  );
}

function Parameters({ id, title, parameters }: { id: string; title: string; parameters: Parameter[] }) {
  if (parameters.length === 0) return null;
  return (
    <>
      <h4>{title}</h4>
      <ul class="properties">
        {parameters.map(({ name, description, schema, required = false }) => (
          <Field
            key={name}
            id={`${id}.${name}`}
            name={name}
            schema={schema}
            isRequired={required}
            description={description ?? schema.description}
          />
        ))}
      </ul>
    </>
  );
}

function BodyPart({ id, body }: { id: string; body: RequestBody }) {
  const { schema = {}, object } = body;
  return (
    <>
      <h4>Body</h4>
      <p class="limits">
        <code>{body.mediaType}</code>
        {body.isRequired ? "" : ", may be left out"}
      </p>
      {schema.$ref ? <BodySchema schema={schema} /> : object && <Fields id={id} schema={object} isRequest />}
    </>
  );
}

/** One status, folded. What is in it is made when it is first opened: a page of all of them would be slow. */
function ResponsePart({ status, description, headers, content }: OperationResponse) {
  const isOpen = useSignal(false);
  const examples = Object.entries(content?.examples ?? {});
  const isFailure = status >= "400";
  return (
    <details
      onToggle={(event) => {
        isOpen.value ||= event.currentTarget.open;
      }}
    >
      <summary>
        <span class={isFailure ? "status" : "status good"}>{status}</span>{" "}
        {isFailure ? examples.map(([code], place) => [place > 0 && ", ", <code>{code}</code>]) : description}
      </summary>
      {isOpen.value && (
        <div class="response">
          {isFailure && (
            <ul class="properties">
              {examples.map(([code, { value }]) => (
                <li key={code} class="property">
                  <a href={`#error-${code}`}>
                    <code>{code}</code>
                  </a>
                  <p>{value.message}</p>
                </li>
              ))}
            </ul>
          )}
          {Object.keys(headers).length > 0 && (
            <>
              <p class="label">Headers</p>
              <ul class="properties">
                {Object.entries(headers).map(([name, header]) => (
                  <Field
                    key={name}
                    id={undefined}
                    name={name}
                    schema={{ type: "string" }}
                    isRequired={false}
                    description={header.description}
                  />
                ))}
              </ul>
            </>
          )}
          {content?.schema && (
            <>
              <p class="label">Body</p>
              <BodySchema schema={content.schema} />
            </>
          )}
          {isFailure && examples[0] && <Code text={jsonText(examples[0][1].value)} />}
        </div>
      )}
    </details>
  );
}
