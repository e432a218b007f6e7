import type { ComponentChildren } from "preact";

interface TableProps {
  columns: string[];
  /** Names the last column for screen readers: its buttons speak for themselves. */
  buttons?: string;
  /** Rows, whose cells have their column's name as `data-label`: where it is narrow, each row is a card. */
  children: ComponentChildren;
}

export function Table({ columns, buttons, children }: TableProps) {
  return (
    <table class="table">
      <thead>
        <tr>
          {columns.map((column) => (
            <th key={column} scope="col">
              {column}
            </th>
          ))}
          {buttons && (
            <th scope="col">
              <span class="visually-hidden">{buttons}</span>
            </th>
          )}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}
