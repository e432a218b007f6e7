import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { StowageError, type UnfinishedUpload, type Usage as UsageRecord } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { NameOf, useNames } from "../parts/event.tsx";
import { Failure } from "../parts/failure.tsx";
import { countOf, formatBytes, formatCount, formatPercent } from "../parts/format.ts";
import { Menu } from "../parts/menu.tsx";
import { More } from "../parts/more.tsx";
import { Page } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { hasTrash } from "../sections.ts";
import { can, client, seesOwnFilesOnly } from "../session.ts";
import { useData, useList } from "../store.ts";
import { revision, unfinishedUploads } from "../uploads/upload.ts";
import { UsageChart } from "./usage-chart.tsx";

/** A team has at most 100 unfinished uploads, so one page has all of them. */
const MAX_UNFINISHED = 100;

export function Usage() {
  const loaded = useData("usage", (signal) => client.value.usage({ signal }), {
    on: ({ subject }) => subject.kind === "file",
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
      call={{ path: "/docs/v1/usage" }}
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
      <UnfinishedUploads onCanceled={reload} />
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

/** The team's unfinished uploads, except those of this tab, which are canceled in their card. */
function UnfinishedUploads({ onCanceled }: { onCanceled: () => void }) {
  const uploads = useList("unfinished", (signal) => client.value.uploads.list({ limit: MAX_UNFINISHED }, { signal }), {
    on: ({ subject }) => subject.kind === "file" || subject.kind === "apikey",
  });
  useNames();
  revision.value;
  const own = unfinishedUploads();
  const others = uploads.items?.filter(({ _id }) => !own.some(({ saved }) => saved?.url?.includes(`/${_id}.`)));
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
          <Table
            label="Unfinished uploads"
            rows={others}
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
                cell: ({ offset, size }) => `${formatBytes(offset)} of ${formatBytes(size)}`,
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
            menu={(upload) =>
              can("files:delete") && (
                <Menu
                  label={`Actions for ${upload.name}`}
                  items={[{ label: "Cancel upload", icon: "close", isDangerous: true, onSelect: () => cancel(upload) }]}
                />
              )
            }
          />
        </>
      )}
      <More of={uploads} />
    </>
  );
}
