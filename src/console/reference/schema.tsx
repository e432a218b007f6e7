/** @jsxImportSource hono/jsx */
import type { Schema } from "./document.ts";
import { Inline } from "./markdown.tsx";

/* The fields of a schema as a list. A named schema is a link to its own section. */

const schemaName = (reference: string): string => reference.split("/").at(-1) ?? "";

/** The schemas that a value may have, without null. */
function alternativesOf(schema: Schema): Schema[] {
  return (schema.anyOf ?? schema.oneOf ?? [schema]).filter(({ type }) => type !== "null");
}

const isNullable = (schema: Schema): boolean =>
  (schema.anyOf ?? schema.oneOf ?? []).some(({ type }) => type === "null") ||
  (Array.isArray(schema.type) && schema.type.includes("null"));

function TypeName({ schema }: { schema: Schema }) {
  const parts = alternativesOf(schema).map((one) => {
    if (one.$ref) {
      const name = schemaName(one.$ref);
      return <a href={`#schema-${name}`}>{name}</a>;
    }
    if (one.const !== undefined) return <code>{JSON.stringify(one.const)}</code>;
    if (one.items) {
      return (
        <>
          array of <TypeName schema={one.items} />
        </>
      );
    }
    const type = [one.type ?? "any value"]
      .flat()
      .filter((name) => name !== "null")
      .join(" or ");
    return one.format ? `${type} (${one.format})` : type;
  });
  if (isNullable(schema)) parts.push("null");
  return (
    <>
      {parts.map((part, index) => (
        <>
          {index > 0 && " or "}
          {part}
        </>
      ))}
    </>
  );
}

const range = (least: number | undefined, most: number | undefined, unit: string): string | undefined => {
  const number = (value: number) => value.toLocaleString("en");
  if (least !== undefined && most !== undefined)
    return least === most ? `${number(least)}${unit}` : `${number(least)} to ${number(most)}${unit}`;
  if (most !== undefined) return `at most ${number(most)}${unit}`;
  return least === undefined ? undefined : `at least ${number(least)}${unit}`;
};

/** The limits of a value, in words, such as "1 to 200 characters". */
function limitsOf(schema: Schema): string {
  const limits = alternativesOf(schema).flatMap((one) => [
    one.format === "binary" ? undefined : range(one.minLength, one.maxLength, " characters"),
    range(one.minimum, one.maximum, ""),
    one.exclusiveMinimum === undefined ? undefined : `more than ${one.exclusiveMinimum}`,
    range(one.minItems, one.maxItems, " items"),
  ]);
  if (schema.default !== undefined) limits.push(`default ${JSON.stringify(schema.default)}`);
  return limits.filter((limit) => limit !== undefined).join(", ");
}

/** The allowed values of a field or of its items, with their meanings if there are any. */
function Values({ schema }: { schema: Schema }) {
  const [one] = alternativesOf(schema);
  const holder = one?.items ?? one ?? schema;
  const meanings = holder["x-enumDescriptions"];
  // The type says whether null is allowed.
  const values = holder.enum?.filter((value) => value !== null);
  if (!values) return null;
  if (!meanings) {
    return (
      <p class="values">
        {values.map((value, index) => (
          <>
            {index > 0 && ", "}
            <code>{String(value)}</code>
          </>
        ))}
      </p>
    );
  }
  return (
    <dl class="meanings">
      {values.map((value) => (
        <div>
          <dt>
            <code>{String(value)}</code>
          </dt>
          <dd>
            <Inline text={meanings[String(value)] ?? ""} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Which fields are marked: in requests those that are required, and in responses those that can be missing. */
type Mark = "required" | "optional";

/** The fields inside a field: of an object, of a map's values, or of an array's items. */
function Inner({ schema, mark }: { schema: Schema; mark: Mark }) {
  return (
    <>
      {alternativesOf(schema).map((one) => {
        const inside = one.items ?? (typeof one.additionalProperties === "object" ? one.additionalProperties : one);
        if (inside !== one && inside.anyOf) return <Inner schema={inside} mark={mark} />;
        return inside.properties && <Fields schema={inside} mark={mark} />;
      })}
    </>
  );
}

export function Field({
  name,
  schema,
  required,
  mark,
  description = schema.description,
  where,
}: {
  name: string;
  schema: Schema;
  required: boolean;
  mark: Mark;
  description?: string | undefined;
  /** The part of a request or response that contains it, such as "query". */
  where?: string;
}) {
  const limits = limitsOf(schema);
  return (
    <div>
      <dt>
        <code>{name}</code>{" "}
        <span class="type">
          <TypeName schema={schema} />
          {limits && `, ${limits}`}
          {where && ` · ${where}`}
          {mark === "optional" && !required && " · optional"}
        </span>
        {mark === "required" && required && <span class="required"> required</span>}
      </dt>
      <dd>
        {description && (
          <p>
            <Inline text={description} />
          </p>
        )}
        <Values schema={schema} />
        <Inner schema={schema} mark={mark} />
      </dd>
    </div>
  );
}

/** The fields of an object, those of each alternative, or the type of any other value. */
export function Fields({ schema, mark }: { schema: Schema; mark: Mark }) {
  const fields = Object.entries(schema.properties ?? {});
  const objects = alternativesOf(schema).filter((one) => one !== schema && one.properties);
  if (objects.length > 0) {
    return (
      <>
        <p class="type">One of these objects:</p>
        {objects.map((one) => (
          <div class="alternative">
            <Fields schema={one} mark={mark} />
          </div>
        ))}
      </>
    );
  }
  if (fields.length === 0) {
    return (
      <>
        <p class="type">
          <TypeName schema={schema} />
        </p>
        <Values schema={schema} />
      </>
    );
  }
  return (
    <dl class="fields">
      {fields.map(([name, field]) => (
        <Field name={name} schema={field} required={schema.required?.includes(name) ?? false} mark={mark} />
      ))}
    </dl>
  );
}
