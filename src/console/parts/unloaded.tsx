import type { ComponentChildren } from "preact";
import { StowageError } from "../../client/stowage.ts";
import { Failure } from "./failure.tsx";
import { Empty, Page } from "./page.tsx";

interface UnloadedProps {
  /** What it would be: "webhook". */
  what: string;
  of: { error: unknown; reload: () => void };
  /** The link to all of them. */
  back: ComponentChildren;
}

export const isMissing = (error: unknown): boolean => error instanceof StowageError && error.code === "not_found";

/** The page of a thing that is not there: not yet, not any more, or never. */
export function Unloaded({ what, of: { error, reload }, back }: UnloadedProps) {
  if (!isMissing(error)) {
    return (
      <Page title={what}>
        <Failure error={error} onRetry={reload} />
        {!error && <p role="status">Loading …</p>}
      </Page>
    );
  }
  return (
    <Page title="Not found">
      <Empty title={`There is no ${what.toLowerCase()} at this address.`}>
        <p>It was deleted, or it never was there.</p>
        <p>{back}</p>
      </Empty>
    </Page>
  );
}
