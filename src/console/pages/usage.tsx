import { useId } from "preact/hooks";
import { Failure } from "../parts/failure.tsx";
import { formatBytes, formatCount, formatPercent } from "../parts/format.ts";
import { useEvents, useLoaded } from "../parts/loading.ts";
import { Page } from "../parts/page.tsx";
import { client } from "../session.ts";

export function Usage() {
  const { value: usage, error, reload } = useLoaded((signal) => client.value.usage({ signal }), []);
  useEvents(({ subject }) => subject.kind === "file", reload);
  return (
    <Page title="Usage">
      <p class="quiet">Your team's storage. Unfinished uploads count toward the limit.</p>
      <Failure error={error} onRetry={reload} />
      {usage && (
        <div class="stack">
          <Bar label="Storage" used={usage.bytes} limit={usage.maxBytes} format={formatBytes} />
          <Bar label="Files" used={usage.files} limit={usage.maxFiles} format={formatCount} />
        </div>
      )}
    </Page>
  );
}

interface BarProps {
  label: string;
  used: number;
  limit: number;
  format: (value: number) => string;
}

function Bar({ label, used, limit, format }: BarProps) {
  const id = useId();
  return (
    <section class="card stack" aria-labelledby={id}>
      <h2 id={id}>{label}</h2>
      <meter aria-labelledby={id} min={0} max={limit} high={limit * 0.9} value={used} />
      <p>
        {format(used)} of {format(limit)} used ({formatPercent(used, limit)})
      </p>
    </section>
  );
}
