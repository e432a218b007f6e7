import type { ComponentChildren, ComponentProps } from "preact";
import { type Inputs, useMemo } from "preact/hooks";

export interface Column<Row> {
  /** Names the column in styles: `[data-column="name"]`. */
  id: string;
  label: string;
  /** A track of the grid, such as `minmax(0, 2fr)`. */
  width: string;
  cell: (row: Row) => ComponentChildren;
  /** Replaces the label at the top, such as by a button that sorts. */
  head?: ComponentChildren;
  sorted?: "ascending" | "descending" | undefined;
  isNumber?: boolean;
  /**
   * On a narrow screen, a row is a card of the row's header and the other cells below it, with their labels or "bare". In
   * a card of two lines, a "note" fills the second one, and an "end" is next to the header.
   */
  card?: "bare" | "note" | "end" | "hidden";
  /** Whether it names the row. By default, the first column does. */
  isHeader?: boolean;
}

export interface TableProps<Row> {
  class?: string;
  /** Names the table to screen readers. */
  label: string;
  rows: Row[];
  keyOf: (row: Row) => string;
  columns: Column<Row>[];
  /** The menu at the end of a row. */
  menu?: ((row: Row) => ComponentChildren) | undefined;
  /** Attributes of the element of a row. */
  rowProps?: (row: Row) => ComponentProps<"tr">;
  /** The content that is unfolded below a row. */
  detail?: (row: Row) => ComponentChildren;
  /** The values that cells depend on besides their row. Rows render again only if one of them changes. */
  inputs?: Inputs;
  isBusy?: boolean;
}

/** A table whose cells have one line each. If its place is narrow, each row is a card of its header and a few lines. */
export function Table<Row>(props: TableProps<Row>) {
  const { class: className = "", label, rows, keyOf, columns, menu, isBusy } = props;
  const tracks = [...columns.map(({ width }) => width), ...(menu ? ["2rem"] : [])].join(" ");
  return (
    <div class="table-place">
      <table class={`table ${className}`} aria-label={label} aria-busy={isBusy} style={{ "--columns": tracks }}>
        <thead>
          <tr>
            {columns.map(({ id, label, head, sorted, isNumber }) => (
              <th key={id} scope="col" data-column={id} class={isNumber ? "number" : ""} aria-sort={sorted}>
                {head ?? label}
              </th>
            ))}
            {menu && (
              <th scope="col" data-column="menu">
                <span class="visually-hidden">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <TableRow key={keyOf(row)} row={row} {...props} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function TableRow<Row>({ row, columns, menu, rowProps, detail, inputs }: TableProps<Row> & { row: Row }) {
  return useMemo(() => {
    const header = columns.find(({ isHeader }) => isHeader) ?? columns[0];
    const unfolded = detail?.(row);
    return (
      <>
        <tr {...rowProps?.(row)}>
          {columns.map((column) => {
            const { id, label, cell, isNumber, card } = column;
            const attributes = { "data-column": id, class: isNumber ? "number" : "", "data-card": card };
            return column === header ? (
              <th key={id} scope="row" {...attributes}>
                {cell(row)}
              </th>
            ) : (
              <td key={id} {...attributes} data-label={card ? undefined : label}>
                {cell(row)}
              </td>
            );
          })}
          {menu && <td data-column="menu">{menu(row)}</td>}
        </tr>
        {unfolded && (
          <tr class="table-detail">
            <td colSpan={columns.length + (menu ? 1 : 0)}>{unfolded}</td>
          </tr>
        )}
      </>
    );
  }, [row, ...(inputs ?? [{}])]);
}
