import type { ComponentChildren } from "preact";
import type { Listing } from "../store.ts";
import { Failure } from "./failure.tsx";
import { More } from "./more.tsx";
import { Table, type TableProps } from "./table.tsx";

interface ListTableProps<Row> extends Omit<TableProps<Row>, "rows"> {
  of: Listing<Row>;
  /** Stands in place of the table if the list is empty. */
  empty?: ComponentChildren;
}

/** A list as a table, with its error and the button for more rows. */
export function ListTable<Row>({ of, empty, ...table }: ListTableProps<Row>) {
  const { items = [], error, reload } = of;
  return (
    <>
      <Failure error={error} onRetry={reload} />
      {of.items?.length === 0 && empty}
      {items.length > 0 && <Table rows={items} {...table} />}
      <More of={of} />
    </>
  );
}
