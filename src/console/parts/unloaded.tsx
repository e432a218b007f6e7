import type { ComponentChildren } from "preact";
import { StowageError } from "../../client/stowage.ts";
import { seesOwnFilesOnly } from "../session.ts";
import { Failure } from "./failure.tsx";
import { Empty, Page, Skeleton } from "./page.tsx";

interface UnloadedProps {
  /** The kind of record: "Webhook". */
  noun: string;
  of: { error: unknown; reload: () => void };
  /** A link to the list. */
  back: ComponentChildren;
}

export const isMissing = (error: unknown): boolean => error instanceof StowageError && error.code === "not_found";

/** The page of a record that has not loaded yet, or that does not exist. */
export function Unloaded({ noun, of: { error, reload }, back }: UnloadedProps) {
  if (!isMissing(error)) {
    return (
      <Page title={noun}>
        <Failure error={error} onRetry={reload} />
        {!error && <Skeleton rows={4} />}
      </Page>
    );
  }
  return (
    <Page title={`${noun} not found`}>
      <Empty title="Nothing here">
        <p>
          {noun === "File" && seesOwnFilesOnly()
            ? "It may have been deleted, or it isn't yours."
            : "It may have been deleted."}
        </p>
        <p>{back}</p>
      </Empty>
    </Page>
  );
}
