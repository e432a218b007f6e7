import { useId } from "preact/hooks";
import { exampleOf, jsonText } from "./call.ts";
import type { Schema } from "./document.ts";

interface InputProps {
  name: string;
  schema: Schema;
  isRequired: boolean;
  value: string;
  onValue: (value: string) => void;
}

const isNumber = ({ type }: Schema) => type === "integer" || type === "number";

/** The values that are to be chosen from, if it is so. */
function choicesOf({ type, enum: listed }: Schema): string[] | undefined {
  return type === "boolean" ? ["true", "false"] : listed?.map(String);
}

/** A value that is neither text nor number nor one of a few is written as JSON. */
const isJson = (schema: Schema) => !choicesOf(schema) && !isNumber(schema) && schema.type !== "string";

/** One value of a call, by its schema. */
export function Input({ name, schema, isRequired, value, onValue }: InputProps) {
  const id = useId();
  const choices = choicesOf(schema);
  const common = { id, value, required: isRequired };
  const onInput = (event: { currentTarget: { value: string } }) => onValue(event.currentTarget.value);
  return (
    <div class="field">
      <label for={id}>
        {name}
        {isRequired && <span class="required"> required</span>}
        {isJson(schema) && <span class="type"> JSON</span>}
      </label>
      {choices ? (
        <select {...common} onChange={onInput}>
          <option value="">–</option>
          {choices.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      ) : (
        <input
          {...common}
          type={isNumber(schema) ? "number" : "text"}
          list={undefined}
          min={schema.minimum}
          max={schema.maximum}
          autocomplete="off"
          spellcheck={false}
          placeholder={exampleOf(schema)}
          onInput={onInput}
        />
      )}
    </div>
  );
}

/** What the fields of a body hold at first: its example. */
export function exampleFields(example: unknown): Record<string, string> {
  const fields = Object.entries((example ?? {}) as Record<string, unknown>);
  return Object.fromEntries(
    fields.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}

/** The JSON that the fields say, without those that are empty. @throws SyntaxError, naming a field that is no JSON */
export function jsonOf(properties: Record<string, Schema>, fields: Record<string, string>): string {
  const given = Object.entries(properties).flatMap(([name, schema]) => {
    const text = fields[name] ?? "";
    if (text === "") return [];
    if (schema.type === "string") return [[name, text]];
    try {
      return [[name, JSON.parse(text)]];
    } catch {
      throw new SyntaxError(`${name} is no JSON.`);
    }
  });
  return jsonText(Object.fromEntries(given));
}
