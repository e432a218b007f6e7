/** @jsxImportSource hono/jsx */
import { type OpenApi, type Operation, type Route, routesOf, type Schema } from "./document.ts";
import { Block, Inline, sectionTitles, slugOf } from "./markdown.tsx";
import { formatJson, samplesOf } from "./samples.ts";
import { Field, Fields } from "./schema.tsx";

/*
 * The page at /reference, rendered from the OpenAPI document when the pages are built. It can be read without a script;
 * script.ts adds search and the forms that send requests.
 */

const Method = ({ name }: { name: string }) => <span class={`method ${name.toLowerCase()}`}>{name}</span>;

const groupId = (tag: string): string => `group-${slugOf(tag)}`;

/** The name of a scheme of tokens, such as "secret key" for `secretKey`. */
const tokenName = (scheme: string): string => scheme.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

function Facts({ operation }: { operation: Operation }) {
  const scope = operation["x-scope"];
  const tokens = (operation.security ?? []).flatMap((one) => Object.keys(one).map(tokenName));
  return (
    <dl class="facts">
      {scope && (
        <div>
          <dt>Scope</dt>
          <dd>
            <code>{scope}</code>
          </dd>
        </div>
      )}
      <div>
        <dt>Token</dt>
        <dd>{tokens.length > 0 ? tokens.join(", ") : "none"}</dd>
      </div>
    </dl>
  );
}

function Description({ operation }: { operation: Operation }) {
  // The facts show the scope.
  const paragraphs = (operation.description ?? "").split("\n\n").filter((one) => !one.startsWith("Scope: "));
  return <Block text={paragraphs.join("\n\n")} />;
}

function Parameters({ operation: { parameters = [] } }: { operation: Operation }) {
  if (parameters.length === 0) return null;
  // Parameters that do nothing come last.
  const inOrder = parameters.toSorted((a, b) => Number(a.deprecated ?? false) - Number(b.deprecated ?? false));
  return (
    <>
      <h4>Parameters</h4>
      <dl class="fields">
        {inOrder.map(({ name, schema, required = false, description, in: where }) => (
          <Field
            name={name}
            schema={schema}
            required={required}
            mark="required"
            description={description}
            where={where}
          />
        ))}
      </dl>
    </>
  );
}

function RequestBody({ operation: { requestBody } }: { operation: Operation }) {
  if (!requestBody) return null;
  return (
    <>
      {Object.entries(requestBody.content).map(([type, { schema }]) => (
        <>
          <h4>
            Body <span class="type">{type}</span>
            {requestBody.required && <span class="required"> required</span>}
          </h4>
          <Fields schema={schema} mark="required" />
        </>
      ))}
    </>
  );
}

function Headers({ headers = {} }: { headers?: Operation["responses"][string]["headers"] }) {
  const fields = Object.entries(headers);
  if (fields.length === 0) return null;
  return (
    <dl class="fields">
      {fields.map(([name, { description, schema = {} }]) => (
        <Field name={name} schema={schema} required mark="optional" description={description} where="header" />
      ))}
    </dl>
  );
}

const isError = (status: string): boolean => Number(status) >= 400;

function Successes({ operation }: { operation: Operation }) {
  const answers = Object.entries(operation.responses).filter(([status]) => !isError(status));
  return (
    <>
      {answers.map(([status, { description, headers, content = {} }]) => (
        <>
          <h4>Response {status}</h4>
          <p>
            <Inline text={description} />
          </p>
          <Headers headers={headers} />
          {Object.values(content).map(({ schema }) => (
            <Fields schema={schema} mark="optional" />
          ))}
        </>
      ))}
    </>
  );
}

/** The codes of an error response and their messages. */
function codesOf(content: Operation["responses"][string]["content"]): [code: string, message: string][] {
  const examples = Object.entries(content?.["application/json"]?.examples ?? {});
  return examples.map(([code, { value }]) => [code, String((value as { message?: unknown }).message ?? "")]);
}

function Errors({ operation }: { operation: Operation }) {
  const failures = Object.entries(operation.responses).filter(([status]) => isError(status));
  if (failures.length === 0) return null;
  return (
    <details class="errors">
      <summary>Errors</summary>
      <dl class="meanings">
        {failures.map(([status, { content, headers = {} }]) => (
          <>
            {codesOf(content).map(([code, message]) => (
              <div>
                <dt>
                  {status} <code>{code}</code>
                </dt>
                <dd>
                  <Inline text={message} />
                </dd>
              </div>
            ))}
            {Object.entries(headers).map(([name, { description = "" }]) => (
              <div>
                <dt>
                  {status} header <code>{name}</code>
                </dt>
                <dd>
                  <Inline text={description} />
                </dd>
              </div>
            ))}
          </>
        ))}
      </dl>
      <p>
        The body is an <a href="#schema-Error">Error</a>.
      </p>
    </details>
  );
}

/** Leaves only the first of a long list of numbers, such as the bars of a waveform. */
const fold = (json: string) => json.replaceAll(/((?:[-.\d]+, ){6})(?:[-.\d]+, ){6,}[-.\d]+/g, "$1…");

function Json({ title, value }: { title: string; value: unknown }) {
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <pre>
        <code>{typeof value === "string" ? value : fold(formatJson(value))}</code>
      </pre>
    </figure>
  );
}

/** A choice of languages by radio buttons, so that it works without a script. */
function Samples({ route }: { route: Route }) {
  const { operationId } = route.operation;
  return (
    <fieldset class="samples">
      <legend class="visually-hidden">Sample request for {route.operation.summary}</legend>
      <div class="languages">
        {samplesOf(route).map(({ language }, index) => (
          <label>
            <input type="radio" name={`language-${operationId}`} value={language} checked={index === 0} />
            {language}
          </label>
        ))}
      </div>
      {samplesOf(route).map(({ language, source }) => (
        <pre data-language={language}>
          <code>{source}</code>
        </pre>
      ))}
    </fieldset>
  );
}

function Examples({ operation }: { operation: Operation }) {
  const answers = Object.entries(operation.responses).flatMap(([status, { content = {} }]) =>
    isError(status) ? [] : Object.values(content).map(({ example }) => [status, example] as const),
  );
  return (
    <>
      {answers.map(([status, example]) =>
        example === undefined ? null : <Json title={`Response ${status}`} value={example} />,
      )}
    </>
  );
}

function OperationSection({ route }: { route: Route }) {
  const { method, path, operation } = route;
  return (
    <article class="operation" id={operation.operationId} aria-labelledby={`title-${operation.operationId}`}>
      <div class="about">
        <h3 id={`title-${operation.operationId}`}>
          <a href={`#${operation.operationId}`}>{operation.summary}</a>
        </h3>
        <p class="route">
          <Method name={method} /> <code>{path}</code>
        </p>
        <Description operation={operation} />
        <Facts operation={operation} />
        <Parameters operation={operation} />
        <RequestBody operation={operation} />
        <Successes operation={operation} />
        <Errors operation={operation} />
      </div>
      <div class="beside">
        <Samples route={route} />
        <Examples operation={operation} />
      </div>
    </article>
  );
}

/** A request that the service sends. */
function WebhookSection({ name, method, operation }: { name: string; method: string; operation: Partial<Operation> }) {
  const { summary = name, description = "", requestBody, parameters = [], responses = {} } = operation;
  const id = `webhook-${slugOf(name)}`;
  const examples = Object.values(requestBody?.content ?? {}).flatMap(({ example, examples: named = {} }) => [
    ...(example === undefined ? [] : [[name, example] as const]),
    ...Object.entries(named).map(([title, { value }]) => [title, value] as const),
  ]);
  const described = { ...operation, operationId: id, tags: [], summary, parameters, responses };
  return (
    <article class="operation" id={id} aria-labelledby={`title-${id}`}>
      <div class="about">
        <h3 id={`title-${id}`}>
          <a href={`#${id}`}>{summary}</a>
        </h3>
        <p class="route">
          <Method name={method.toUpperCase()} /> <code>{name}</code>
        </p>
        <Block text={description} />
        <Parameters operation={described} />
        <RequestBody operation={described} />
        <Successes operation={described} />
      </div>
      <div class="beside">
        {examples.map(([title, value]) => (
          <Json title={title} value={value} />
        ))}
      </div>
    </article>
  );
}

/** The responses of operations are examples of their schemas. Only that of errors, which they don't show, needs its own. */
function SchemaSection({ name, schema, example }: { name: string; schema: Schema; example: unknown }) {
  return (
    <article class="operation" id={`schema-${name}`} aria-labelledby={`title-schema-${name}`}>
      <div class="about">
        <h3 id={`title-schema-${name}`}>
          <a href={`#schema-${name}`}>{name}</a>
        </h3>
        {schema.description && <Block text={schema.description} />}
        <Fields schema={schema} mark="optional" />
      </div>
      <div class="beside">{example !== undefined && <Json title="Example" value={example} />}</div>
    </article>
  );
}

/** The body of the first error response. */
function errorExample(routes: Route[]): unknown {
  const answers = routes.flatMap(({ operation }) => Object.entries(operation.responses));
  const [, answer] = answers.find(([status, { content }]) => isError(status) && content) ?? [];
  return Object.values(answer?.content?.["application/json"]?.examples ?? {})[0]?.value;
}

interface Group {
  id: string;
  name: string;
  links: { id: string; title: string; method?: string }[];
}

function Index({ groups }: { groups: Group[] }) {
  return (
    <nav class="index" aria-label="Contents">
      <ul>
        {groups.map(({ id, name, links }) => (
          <li>
            <a class="group" href={`#${id}`}>
              {name}
            </a>
            <ul>
              {links.map((link) => (
                <li>
                  <a href={`#${link.id}`}>
                    <span>{link.title}</span>
                    {link.method && <Method name={link.method} />}
                  </a>
                </li>
              ))}
            </ul>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/**
 * Returns the page as HTML.
 * @throws if an operation has a tag that the document does not describe: it would be missing from the page
 */
export function renderReference(document: OpenApi): string {
  const routes = routesOf(document);
  const { info, tags, components } = document;
  for (const { operation } of routes) {
    if (!tags.some(({ name }) => name === operation.tags[0]))
      throw new Error(`The tag "${operation.tags[0]}" of ${operation.operationId} is not described.`);
  }
  const byTag = tags.map((tag) => ({
    ...tag,
    routes: routes.filter(({ operation }) => operation.tags[0] === tag.name),
  }));
  const webhooks = Object.entries(document.webhooks ?? {}).flatMap(([name, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ name, method, operation })),
  );
  const schemas = Object.entries(components.schemas).sort(([a], [b]) => a.localeCompare(b, "en"));
  const groups: Group[] = [
    {
      id: "introduction",
      name: "Introduction",
      links: sectionTitles(info.description).map((title) => ({ id: slugOf(title), title })),
    },
    ...byTag.map(({ name, routes }) => ({
      id: groupId(name),
      name,
      links: routes.map(({ method, operation }) => ({ id: operation.operationId, title: operation.summary, method })),
    })),
    ...(webhooks.length > 0
      ? [
          {
            id: "webhook-requests",
            name: "Webhook requests",
            links: webhooks.map(({ name, operation }) => ({
              id: `webhook-${slugOf(name)}`,
              title: operation.summary ?? name,
            })),
          },
        ]
      : []),
    { id: "schemas", name: "Schemas", links: schemas.map(([name]) => ({ id: `schema-${name}`, title: name })) },
  ];
  const page = (
    <html lang="en">
      <head>
        <meta name="description" content="Every operation of the Stowage API, with samples and a form to try it." />
        <link rel="alternate" type="text/markdown" href="/reference.md" />
        <title>{info.title} API reference</title>
      </head>
      <body>
        <a class="skip" href="#main">
          Skip to content
        </a>
        <div class="side">
          <header class="bar">
            <a class="brand" href="/">
              <img src="/assets/icon.svg" alt="" width="24" height="24" /> {info.title}
            </a>
            <nav aria-label="Site">
              <a href="/console">Console</a>
              <a href="/openapi.json">OpenAPI</a>
              <a href="/reference.md">Markdown</a>
            </nav>
            <search id="search" />
          </header>
          <Index groups={groups} />
        </div>
        <main id="main">
          <section id="introduction" class="introduction">
            <h1>API reference</h1>
            <Block text={info.description} operations={routes.map(({ operation }) => operation.operationId)} />
          </section>
          {byTag.map(({ name, description, routes }) => (
            <section id={groupId(name)} class="group">
              <h2>{name}</h2>
              <p>
                <Inline text={description} />
              </p>
              {routes.map((route) => (
                <OperationSection route={route} />
              ))}
            </section>
          ))}
          {webhooks.length > 0 && (
            <section id="webhook-requests" class="group">
              <h2>Webhook requests</h2>
              <p>What the service sends to the URL of a webhook.</p>
              {webhooks.map(({ name, method, operation }) => (
                <WebhookSection name={name} method={method} operation={operation} />
              ))}
            </section>
          )}
          <section id="schemas" class="group">
            <h2>Schemas</h2>
            {schemas.map(([name, schema]) => (
              <SchemaSection
                name={name}
                schema={schema}
                example={name === "Error" ? errorExample(routes) : undefined}
              />
            ))}
          </section>
        </main>
      </body>
    </html>
  );
  return `<!doctype html>${page}`;
}
