import type { ComponentChild } from "preact";
import { objectIn, refersTo, type Schema } from "./document.ts";
import { Inline, Prose } from "./prose.tsx";

/** What a longer pattern says, or one of characters that can't be seen, the field's description says for people. */
const isReadable = (pattern: string) => pattern.length <= 48 && !pattern.includes("\\u");

function typeOf(schema: Schema): ComponentChild {
  const name = refersTo(schema);
  if (name) return <a href={`#schema-${name}`}>{name}</a>;
  if (schema.anyOf) {
    return schema.anyOf.map((one, place) => [place > 0 && " or ", typeOf(one)]);
  }
  if (schema.type === "array") return ["array of ", typeOf(schema.items ?? {})];
  if (Array.isArray(schema.type)) return schema.type.join(" or ");
  return schema.type ?? "anything";
}

function range(from: number | undefined, to: number | undefined, unit: string): string | undefined {
  if (from === undefined && to === undefined) return undefined;
  if (to === undefined && unit !== "" && from === 1) return "not empty";
  if (to === undefined) return `at least ${from}${unit}`;
  return from === undefined ? `at most ${to}${unit}` : `${from} to ${to}${unit}`;
}

/** What a value has to be, beside its type: pieces between commas. */
function limitsOf(schema: Schema): ComponentChild[] {
  const one = schema.anyOf?.find(({ type }) => type !== "null") ?? schema;
  const listed = one.enum ?? one.items?.enum ?? (one.const === undefined ? undefined : [one.const]);
  const limits: (ComponentChild | undefined)[] = [
    one.format,
    range(one.minimum, one.maximum, ""),
    range(one.minLength, one.maxLength, " characters"),
    range(one.minItems, one.maxItems, " items"),
    one.pattern && isReadable(one.pattern) && <code>{one.pattern}</code>,
    schema.default !== undefined && ["default ", <code>{JSON.stringify(schema.default)}</code>],
    listed && [
      listed.length > 1 ? "one of " : "always ",
      listed.map((value, place) => [place > 0 && ", ", <code>{String(value)}</code>]),
    ],
  ];
  return limits.filter(Boolean).map((limit, place) => [place > 0 && "; ", limit]);
}

interface FieldProps {
  id: string | undefined;
  name: string;
  schema: Schema;
  isRequired: boolean;
  description?: string | undefined;
}

/** A field, parameter or header: its name and type, what it has to be, and its own fields, folded. */
export function Field({ id, name, schema, isRequired, description = schema.description }: FieldProps) {
  const limits = limitsOf(schema);
  const object = objectIn(schema);
  return (
    <li id={id} tabIndex={id ? -1 : undefined} class="property">
      <p class="property-name">
        <code>{name}</code> <span class="type">{typeOf(schema)}</span>
        {isRequired && <span class="required">required</span>}
      </p>
      {description && <Prose text={description} />}
      {limits.length > 0 && <p class="limits">{limits}</p>}
      {object && (
        <details>
          <summary>
            Fields of <code>{name}</code>
          </summary>
          <Fields id={id} schema={object} />
        </details>
      )}
    </li>
  );
}

/** The fields of an object, each at `#{id}.{name}`; without an id they have no address. */
export function Fields({
  id,
  schema,
  isRequest = false,
}: {
  id: string | undefined;
  schema: Schema;
  isRequest?: boolean;
}) {
  const { properties = {}, required = [], minProperties } = schema;
  return (
    <>
      {minProperties && <p class="limits">At least {minProperties} of these.</p>}
      <ul class="properties">
        {Object.entries(properties).map(([name, field]) => (
          <Field
            key={name}
            id={id && `${id}.${name}`}
            name={name}
            schema={field}
            // What the service sends always has all but a few fields: there the few are told.
            isRequired={isRequest && required.includes(name)}
            description={
              !isRequest && !required.includes(name)
                ? `Not always there. ${field.description ?? ""}`
                : field.description
            }
          />
        ))}
      </ul>
    </>
  );
}

/** The body of a response: a named schema, a list of one, or fields of its own. */
export function BodySchema({ schema }: { schema: Schema }) {
  if (!schema.properties) return <p>{typeOf(schema)}</p>;
  return <Fields id={undefined} schema={schema} />;
}

/** A named schema, once for all that refer to it. */
export function NamedSchema({ name, schema }: { name: string; schema: Schema }) {
  return (
    <section class="schema" id={`schema-${name}`} tabIndex={-1} data-part aria-labelledby={`title-schema-${name}`}>
      <h3 id={`title-schema-${name}`}>{name}</h3>
      {schema.description && (
        <p>
          <Inline text={schema.description} />
        </p>
      )}
      <Fields id={`schema-${name}`} schema={schema} />
    </section>
  );
}
