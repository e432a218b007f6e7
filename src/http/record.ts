import * as z from "zod";
import { lazy } from "../lazy.ts";
import { id } from "./validation.ts";

/*
 * A record of the API is described once, as a table of its fields. Its schema, its example and its rendering follow from
 * that table, in its order.
 */

/** A field of a record: its schema, an example, and its value for a stored record. */
export interface Field<T, S extends z.ZodType = z.ZodType> {
  schema: () => S;
  example: z.input<S>;
  render(record: T): z.input<S>;
}

/** Returns a function that describes the fields of stored records of the type `T`. */
export const fieldOf =
  <T>() =>
  <S extends z.ZodType>(schema: () => S, example: z.input<S>, render: (record: T) => z.input<S>): Field<T, S> => ({
    schema: lazy(schema),
    example,
    render,
  });

/** The key or session that created a record, with its user. */
export const creator = lazy(() => z.strictObject({ keyId: id(), userId: id().nullable() }).meta({ id: "Creator" }));

type Fields = Record<string, Pick<Field<never>, "schema" | "render"> & { example: unknown }>;
/** The stored record from which all of the fields can be rendered. */
type RecordOf<F extends Fields> = F[keyof F]["render"] extends (record: infer T) => unknown ? T : never;
type SchemaOf<F extends Fields> = z.ZodObject<{ [Name in keyof F]: ReturnType<F[Name]["schema"]> }, z.core.$strict>;

export interface RecordDescription<F extends Fields> {
  /** The table itself, for a record that has further fields. */
  fields: F;
  schema: () => SchemaOf<F>;
  example: z.input<SchemaOf<F>>;
  render(record: RecordOf<F>): z.input<SchemaOf<F>>;
}

/** @param id the name of the schema in the OpenAPI document */
export function describeRecord<F extends Fields>({
  id,
  description,
  fields,
}: {
  id: string;
  description?: string;
  fields: F;
}): RecordDescription<F> {
  const table = Object.entries(fields) as [string, Field<RecordOf<F>>][];
  const all = <V>(part: (field: Field<RecordOf<F>>) => V) =>
    Object.fromEntries(table.map(([name, field]) => [name, part(field)]));
  return {
    fields,
    schema: lazy(
      () =>
        z
          .strictObject(all(({ schema }) => schema()))
          .meta({ id, ...(description && { description }) }) as unknown as SchemaOf<F>,
    ),
    example: all(({ example }) => example) as z.input<SchemaOf<F>>,
    render: (record) => all(({ render }) => render(record)) as z.input<SchemaOf<F>>,
  };
}
