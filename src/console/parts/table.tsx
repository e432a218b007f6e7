import type { ComponentChildren } from "preact";

interface TableProps {
  class?: string;
  columns: string[];
  /** The name of the last column, which holds buttons, for screen readers. */
  buttons?: string;
  /** Rows. Each cell has the name of its column as `data-label`, because on narrow screens each row is a card. */
  children: ComponentChildren;
}

export function Table({ class: className = "", columns, buttons, children }: TableProps) {
  return (
    <table class={`table ${className}`}>
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
