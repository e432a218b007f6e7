import { useEffect, useId } from "preact/hooks";
import { onEvent } from "../live.ts";
import { Failure } from "../parts/failure.tsx";
import { useLoaded } from "../parts/loading.ts";
import { Page } from "../parts/page.tsx";
import { formatBytes, formatCount } from "../parts/values.tsx";
import { client } from "../session.ts";

const percent = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });

export function Usage() {
  const { value: usage, error, reload } = useLoaded((signal) => client.value.usage({ signal }), []);
  useEffect(() => onEvent(({ subject }) => subject.kind === "file" && reload()), [reload]);
  return (
    <Page title="Usage">
      <p class="quiet">What the team keeps, and may keep. Uploads that are not finished yet count in full.</p>
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
        {format(used)} of {format(limit)} ({percent.format(used / limit)})
      </p>
    </section>
  );
}
