import type { ComponentChildren } from "preact";
import { type Action, ActionButton } from "../framework/action.tsx";
import type { Scope } from "../framework/session.ts";
import type { Listing } from "../framework/store.ts";
import { MissingScopes } from "./access.tsx";
import { Failure } from "./failure.tsx";
import { More } from "./more.tsx";
import { Page } from "./page.tsx";
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

interface ListPageProps<Row> extends Omit<ListTableProps<Row>, "label"> {
  title: string;
  back?: ComponentChildren;
  subtitle?: ComponentChildren;
  /** The button at the top. */
  main?: Action | false | undefined;
  /** The scopes that the page needs. It shows which of them the user lacks. */
  scopes?: Scope[];
  filters?: ComponentChildren;
  /** Shown below the table. */
  children?: ComponentChildren;
}

/** The page of all records of a kind. */
export function ListPage<Row>(props: ListPageProps<Row>) {
  const { title, back, subtitle, main, scopes = [], filters, children, ...table } = props;
  return (
    <Page
      title={title}
      back={back}
      subtitle={subtitle}
      actions={main && <ActionButton action={main} class={main.isDangerous ? "danger" : "primary"} />}
    >
      <MissingScopes scopes={scopes} />
      {filters}
      <ListTable label={title} {...table} />
      {children}
    </Page>
  );
}
