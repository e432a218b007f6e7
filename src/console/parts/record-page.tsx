import type { ComponentChildren } from "preact";
import { StowageError } from "../../client/index.ts";
import { type Action, ActionButton, type Actions } from "../framework/action.tsx";
import { type Scope, seesOwnFilesOnly } from "../framework/session.ts";
import type { Loaded } from "../framework/store.ts";
import { MissingScopes } from "./access.tsx";
import { Failure } from "./failure.tsx";
import { Menu } from "./menu.tsx";
import { Breadcrumbs, Empty, Page, Skeleton } from "./page.tsx";

export const isMissing = (error: unknown): boolean => error instanceof StowageError && error.code === "not_found";

interface MissingProps {
  /** The kind of record: "Webhook". */
  noun: string;
  /** The page of all records. */
  list: { href: string; label: string };
}

/** The page of a record that does not exist. */
export const Missing = ({ noun, list }: MissingProps) => (
  <Page title={`${noun} not found`}>
    <Empty title="Nothing here">
      <p>
        {noun === "File" && seesOwnFilesOnly()
          ? "It may have been deleted, or it isn't yours."
          : "It may have been deleted."}
      </p>
      <p>
        <a href={list.href}>Back to {list.label.toLowerCase()}</a>
      </p>
    </Empty>
  </Page>
);

interface RecordPageProps<T> extends MissingProps {
  of: Loaded<T>;
  titleOf: (record: T) => string;
  subtitle?: (record: T) => ComponentChildren;
  /** The actions with their own buttons. */
  buttons?: (record: T) => Action[];
  /** The other actions, in a menu. */
  actions?: (record: T) => Actions;
  /** The most important action, at the end. */
  main?: (record: T) => Action | false;
  /** Stand before the actions. */
  links?: ComponentChildren;
  scopes?: Scope[];
  children: (record: T) => ComponentChildren;
}

/** The page of one record. */
export function RecordPage<T>(props: RecordPageProps<T>) {
  const { noun, list, of, titleOf, subtitle, buttons, actions, main, links, scopes = [], children } = props;
  const { value, error, reload } = of;
  const mainAction = value !== undefined && main?.(value);
  if (isMissing(error)) return <Missing noun={noun} list={list} />;
  return (
    <Page
      title={value === undefined ? noun : titleOf(value)}
      subtitle={value !== undefined && subtitle?.(value)}
      back={<Breadcrumbs links={[list]} />}
      actions={
        value !== undefined && (
          <>
            {links}
            {buttons?.(value).map((action) => (
              <ActionButton key={action.label} action={action} />
            ))}
            <Menu label={`Actions for this ${noun.toLowerCase()}`} items={actions?.(value) ?? []} />
            {mainAction && <ActionButton action={mainAction} class="primary" />}
          </>
        )
      }
    >
      <Failure error={error} onRetry={reload} />
      <MissingScopes scopes={scopes} />
      {value === undefined ? !error && <Skeleton rows={4} /> : children(value)}
    </Page>
  );
}
