import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { StowageError, type UnfinishedUpload, type Usage as UsageRecord } from "../../client/index.ts";
import { NameOf } from "../events/names.tsx";
import { confirm } from "../framework/dialog.tsx";
import { href } from "../framework/router.ts";
import { can, client, hasTrash, seesOwnFilesOnly } from "../framework/session.ts";
import { touch, useData, useList } from "../framework/store.ts";
import { Failure } from "../parts/failure.tsx";
import { countOf, formatBytes, formatCount, formatPercent } from "../parts/format.ts";
import { ListTable } from "../parts/list-page.tsx";
import { Page } from "../parts/page.tsx";
import { Time } from "../parts/values.tsx";
import { revision, unfinishedUploads } from "./upload.ts";
import { UsageChart } from "./usage-chart.tsx";

/** A page. It has all resumable uploads, of which a team has at most 100, unless form uploads began after them. */
const MAX_UNFINISHED = 100;

export function Usage() {
  const loaded = useData(["usage"], (signal) => client.value.usage({ signal }), {
    of: ["file"],
  });
  const { value: usage, error, reload } = loaded;
  return (
    <Page
      title="Usage"
      subtitle={
        seesOwnFilesOnly()
          ? "Your own files. The limits are those of your team."
          : "Unfinished uploads count toward the limits."
      }
    >
      <Failure error={error} onRetry={reload} />
      {usage && (
        <div class="columns">
          <Bar label="Storage" used={usage.bytes} limit={usage.maxBytes} format={formatBytes}>
            {usage.trashFiles > 0 && <InTrash {...usage} />}
          </Bar>
          <Bar label="Files" used={usage.files} limit={usage.maxFiles} format={formatCount} />
        </div>
      )}
      {can("events:read") && <UsageChart />}
      <UnfinishedUploads />
    </Page>
  );
}

interface BarProps {
  label: string;
  used: number;
  limit: number;
  format: (value: number) => string;
  children?: ComponentChildren;
}

function Bar({ label, used, limit, format, children }: BarProps) {
  const id = useId();
  return (
    <section class="card stack" aria-labelledby={id}>
      <h2 id={id}>{label}</h2>
      <meter aria-labelledby={id} min={0} max={limit} high={limit * 0.9} value={used} />
      <p>
        <strong>{format(used)}</strong>{" "}
        <span class="quiet">
          of {format(limit)} used ({formatPercent(used, limit)})
        </span>
      </p>
      {children}
    </section>
  );
}

/** The part of the storage that the trash takes. */
function InTrash({ trashFiles, trashBytes }: Pick<UsageRecord, "trashFiles" | "trashBytes">) {
  const part = `${countOf(trashFiles, "file")} (${formatBytes(trashBytes)}) in the trash`;
  return <p class="quiet">Includes {hasTrash() ? <a href={href("/trash")}>{part}</a> : part}</p>;
}

const cancelUpload = ({ _id, name }: UnfinishedUpload) =>
  confirm({
    title: `Cancel the upload of “${name}”?`,
    text: "The part that is already stored is deleted. An app that is still sending the file may start over.",
    action: "Cancel upload",
    run: () =>
      client.value.unfinishedUploads.cancel(_id).then(
        () => true,
        (error) => {
          if (error instanceof StowageError && error.code === "forbidden") return false;
          throw error;
        },
      ),
    done: (isCanceled) => {
      touch("file");
      return isCanceled ? `Canceled the upload of “${name}”` : `“${name}” had already finished uploading`;
    },
  });

/** The bytes of a form upload are not known before it ends. */
function storedOf({ kind, status, offset, size }: UnfinishedUpload): string {
  if (status === "canceled") return "Canceled";
  return kind === "form" ? `Up to ${formatBytes(size)}` : `${formatBytes(offset)} of ${formatBytes(size)}`;
}

/** The team's unfinished uploads, except resumable ones of this tab, which are canceled in their card. */
function UnfinishedUploads() {
  const uploads = useList(
    ["unfinished"],
    (signal) => client.value.unfinishedUploads.list({ limit: MAX_UNFINISHED }, { signal }),
    {
      of: ["file", "apikey"],
    },
  );
  revision.value;
  const own = unfinishedUploads();
  const others = uploads.items?.filter(({ _id }) => !own.some(({ saved }) => saved?.url?.includes(`/${_id}.`)));
  return (
    <>
      {others && others.length > 0 && <h2>Unfinished uploads</h2>}
      <ListTable
        of={{ ...uploads, items: others }}
        label="Unfinished uploads"
        keyOf={({ _id }) => _id}
        columns={[
          {
            id: "name",
            label: "Name",
            width: "minmax(0, 3fr)",
            cell: ({ name }) => <bdi title={name}>{name}</bdi>,
          },
          {
            id: "stored",
            label: "Stored",
            width: "minmax(0, 2fr)",
            cell: storedOf,
          },
          {
            id: "key",
            label: "Key",
            width: "minmax(0, 2fr)",
            cell: ({ keyId }) => <NameOf keyId={keyId} userId={null} isFirst />,
          },
          {
            id: "started",
            label: "Started",
            width: "minmax(0, 1.5fr)",
            cell: ({ createdAt }) => <Time at={createdAt} isRelative />,
          },
          {
            id: "expires",
            label: "Expires",
            width: "minmax(0, 1.5fr)",
            cell: ({ expiresAt }) => <Time at={expiresAt} isRelative />,
          },
        ]}
        nameOf={({ name }) => name}
        actions={(upload) =>
          upload.status === "canceled"
            ? []
            : [
                {
                  label: "Cancel upload",
                  icon: "close",
                  scope: "files:delete",
                  isDangerous: true,
                  run: () => cancelUpload(upload),
                },
              ]
        }
      />
    </>
  );
}
