import { useId } from "preact/hooks";
import { StowageError, type UnfinishedUpload } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { NameOf, useNames } from "../parts/event.tsx";
import { Failure } from "../parts/failure.tsx";
import { formatBytes, formatCount, formatPercent } from "../parts/format.ts";
import { useEvents, useListing, useLoaded } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Page } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { can, client } from "../session.ts";
import { revision, unfinishedUploads } from "../uploads/upload.ts";
import { UsageChart } from "./usage-chart.tsx";

/** A team has at most 100 unfinished uploads, so one page has all of them. */
const MAX_UNFINISHED = 100;

export function Usage() {
  const { value: usage, error, reload } = useLoaded((signal) => client.value.usage({ signal }), []);
  useEvents(({ subject }) => subject.kind === "file", reload);
  return (
    <Page title="Usage" call={{ path: "/docs/v1/usage" }}>
      <p class="quiet">Your team's storage. Unfinished uploads count toward the limit.</p>
      <Failure error={error} onRetry={reload} />
      {usage && (
        <div class="columns">
          <Bar label="Storage" used={usage.bytes} limit={usage.maxBytes} format={formatBytes} />
          <Bar label="Files" used={usage.files} limit={usage.maxFiles} format={formatCount} />
        </div>
      )}
      {can("events:read") && <UsageChart />}
      <UnfinishedUploads onCanceled={reload} />
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

/** The team's unfinished uploads, except those of this tab: their card cancels them, and would otherwise restart them. */
function UnfinishedUploads({ onCanceled }: { onCanceled: () => void }) {
  const uploads = useListing((signal) => client.value.uploads.list({ limit: MAX_UNFINISHED }, { signal }), []);
  useEvents(({ subject }) => subject.kind === "file" || subject.kind === "apikey", uploads.reload);
  useNames();
  revision.value;
  const own = unfinishedUploads();
  const others = uploads.items?.filter(({ _id }) => !own.some(({ url }) => url?.includes(`/${_id}.`)));
  const cancel = ({ _id, name }: UnfinishedUpload) =>
    confirmFirst({
      title: `Cancel the upload of “${name}”?`,
      text: "The part that is already stored is deleted. An app that is still sending the file may start over.",
      action: "Cancel upload",
      onConfirm: async () => {
        const isCanceled = await client.value.uploads.cancel(_id).then(
          () => true,
          (error) => {
            if (error instanceof StowageError && error.code === "forbidden") return false;
            throw error;
          },
        );
        announce(isCanceled ? `Canceled the upload of “${name}”` : `“${name}” had already finished uploading`);
        uploads.reload();
        onCanceled();
      },
    });
  return (
    <>
      <Failure error={uploads.error} onRetry={uploads.reload} />
      {others && others.length > 0 && (
        <>
          <h2>Unfinished uploads</h2>
          <Table columns={["Name", "Stored", "Key", "Started", "Expires"]} buttons="Actions">
            {others.map((upload) => (
              <tr key={upload._id}>
                <th scope="row">
                  <bdi>{upload.name}</bdi>
                </th>
                <td data-label="Stored">
                  {formatBytes(upload.offset)} of {formatBytes(upload.size)}
                </td>
                <td data-label="Key">
                  <NameOf keyId={upload.keyId} userId={null} />
                </td>
                <td data-label="Started">
                  <Time at={upload.createdAt} isRelative />
                </td>
                <td data-label="Expires">
                  <Time at={upload.expiresAt} isRelative />
                </td>
                <td class="number">
                  {can("files:delete") && (
                    <button
                      type="button"
                      class="button small danger"
                      onClick={() => cancel(upload)}
                      aria-label={`Cancel ${upload.name}`}
                    >
                      Cancel
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </Table>
        </>
      )}
      <More of={uploads} />
    </>
  );
}
