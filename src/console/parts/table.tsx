import { type Signal, useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren, ComponentProps } from "preact";
import { type Inputs, useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { type Actions, allowed, shortcutsOf } from "../framework/action.tsx";
import { focusRow } from "../framework/focus.ts";
import { addShortcuts } from "../framework/keys.ts";
import { SelectAll, type Selection, SelectRow, TabStop, toggleRow, useTabIndex } from "./choice.tsx";
import { Menu } from "./menu.tsx";

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

/** The head of a column that sorts. */
export const sortHead = (label: string, sorted: Column<unknown>["sorted"], onSort: () => void) => ({
  head: (
    <button type="button" class="sort" onClick={onSort}>
      {label}
      {sorted && <span aria-hidden="true">{sorted === "descending" ? " ↓" : " ↑"}</span>}
    </button>
  ),
  sorted,
});

export interface TableProps<Row> {
  class?: string;
  /** Names the table to screen readers. */
  label: string;
  rows: Row[];
  keyOf: (row: Row) => string;
  /** Names a row in the labels of its controls. */
  nameOf?: (row: Row) => string;
  columns: Column<Row>[];
  /** The actions for a row: in its menu, and by their keys. If it is one of the selected ones, `rows` are all of these. */
  actions?: (row: Row, rows: Row[]) => Actions;
  /** Rows can be selected. Their controls are then one stop of the Tab key: the arrow keys move between rows. */
  selected?: Selection | undefined;
  /** Called for the space bar on the link of a row. */
  onSpace?: (row: Row) => void;
  /** Attributes of the element of a row. */
  rowProps?: (row: Row) => ComponentProps<"tr">;
  /** The values that cells depend on besides their row. Rows render again only if one of them changes. */
  inputs?: Inputs;
  isBusy?: boolean;
}

/** A table whose cells have one line each. If its place is narrow, each row is a card of its header and a few lines. */
export function Table<Row>(props: TableProps<Row>) {
  const { class: className = "", label, rows, keyOf, actions, selected, isBusy } = props;
  const keys = rows.map(keyOf);
  const body = useRef<HTMLTableSectionElement>(null);
  /** The row that the keys have reached. */
  const active = useSignal(keys[0] ?? "");
  const anchor = useRef("");
  // Rows are drawn again only if they change, so their handlers read the latest properties.
  const latest = useRef({ ...props, keys });
  latest.current = { ...props, keys };
  useLayoutEffect(() => {
    if (!keys.includes(active.peek())) active.value = keys[0] ?? "";
  });
  const select = (key: string, isRange: boolean) => {
    const { keys } = latest.current;
    const [from, to] = [keys.indexOf(anchor.current), keys.indexOf(key)];
    anchor.current = key;
    if (selected)
      toggleRow(selected, key, isRange && from >= 0 ? keys.slice(Math.min(from, to), Math.max(from, to) + 1) : []);
  };
  useEffect(() => {
    if (!selected) return;
    return addShortcuts(() => {
      const { rows, keys, keyOf, actions, onSpace } = latest.current;
      const index = keys.indexOf(active.peek());
      const [element, row] = [body.current?.children[index], rows[index]];
      const isInside = element?.contains(document.activeElement);
      const move = (step: number) => (event: KeyboardEvent) => {
        const next = body.current?.children[isInside ? index + step : index];
        if (!next) return false;
        event.preventDefault();
        // At once, because the next press starts from the focus.
        focusRow(next);
      };
      const moves = { ArrowDown: move(1), ArrowUp: move(-1), j: move(1), k: move(-1) };
      const clear = () => {
        selected.value = new Set();
      };
      if (!row || !isInside) return { ...moves, Escape: clear };
      const chosen = rows.filter((one) => selected.peek().has(keyOf(one)));
      const space = (event: KeyboardEvent) => {
        if (!onSpace || document.activeElement !== element?.querySelector("a")) return false;
        event.preventDefault();
        onSpace(row);
      };
      return {
        ...shortcutsOf(actions?.(row, [row]) ?? []),
        ...(chosen.includes(row) && shortcutsOf(actions?.(row, chosen) ?? [])),
        ...moves,
        x: () => select(keyOf(row), false),
        " ": space,
        Escape: clear,
      };
    });
  }, [selected]);
  const choice: Column<Row> = {
    id: "choice",
    label: "Selected",
    width: "1rem",
    card: "bare",
    head: selected && <SelectAll keys={keys} selected={selected} />,
    cell: (row) =>
      selected && <SelectRow row={keyOf(row)} name={props.nameOf?.(row)} selected={selected} onSelect={select} />,
  };
  const columns = selected ? [choice, ...props.columns] : props.columns;
  const hasMenu =
    selected !== undefined || (actions !== undefined && rows.some((row) => allowed(actions(row, [row])).length > 0));
  const tracks = [...columns.map(({ width }) => width), ...(hasMenu ? ["2rem"] : [])].join(" ");
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
            {hasMenu && (
              <th scope="col" data-column="menu">
                <span class="visually-hidden">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody ref={body}>
          {rows.map((row) => (
            <TableRow
              key={keyOf(row)}
              row={row}
              {...props}
              columns={columns}
              hasMenu={hasMenu}
              active={active}
              onSelect={select}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps<Row> extends TableProps<Row> {
  row: Row;
  hasMenu: boolean;
  active: Signal<string>;
  onSelect: (key: string, isRange: boolean) => void;
}

function TableRow<Row>(props: RowProps<Row>) {
  const { row, keyOf, nameOf, columns, actions, hasMenu, selected, active, onSelect, rowProps, inputs } = props;
  const key = keyOf(row);
  const tabIndex = useComputed(() => (selected && active.value !== key ? -1 : 0));
  return useMemo(() => {
    const header = columns.find(({ isHeader }) => isHeader) ?? columns[0];
    const select = () => onSelect(key, false);
    return (
      <TabStop.Provider value={tabIndex}>
        <tr
          onFocusIn={() => {
            active.value = key;
          }}
          {...(selected && clicksOf(select))}
          {...rowProps?.(row)}
        >
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
          {hasMenu && (
            <td data-column="menu">
              <RowMenu
                label={`Actions for ${nameOf?.(row) ?? "this row"}`}
                items={[...(actions?.(row, [row]) ?? []), selected && { label: "Select", icon: "check", run: select }]}
              />
            </td>
          )}
        </tr>
      </TabStop.Provider>
    );
  }, [row, ...(inputs ?? [{}])]);
}

/** A click next to the controls of a row follows its link, or selects a row without one, as does a long press. */
const clicksOf = (select: () => void): ComponentProps<"tr"> => ({
  onContextMenu: (event) => {
    if ((event as unknown as PointerEvent).pointerType !== "touch") return;
    event.preventDefault();
    select();
  },
  onClick: (event) => {
    const target = event.target as Element;
    if (target.closest("a, button, input, .row-wave, [popover]") || getSelection()?.type === "Range") return;
    const link = target.closest("tr")?.querySelector("a");
    if (link) link.dispatchEvent(new MouseEvent("click", event));
    else select();
  },
});

const RowMenu = (props: { label: string; items: Actions }) => <Menu tabIndex={useTabIndex()} {...props} />;
