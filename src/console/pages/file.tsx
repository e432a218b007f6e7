import { useEffect, useRef, useState } from "preact/hooks";
import type { FileMetadata } from "../../client/stowage.ts";
import { onEvent } from "../live.ts";
import { announce } from "../parts/announce.tsx";
import { FactList } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { Form, SelectField, TextField, textOf } from "../parts/form.tsx";
import { useLoaded } from "../parts/loading.ts";
import { Page } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { isMissing, Unloaded } from "../parts/unloaded.tsx";
import { CopyButton, formatBytes, formatCount, formatDuration, StatusBadge, Time } from "../parts/values.tsx";
import { lastList, navigate } from "../router.ts";
import { client } from "../session.ts";
import { Player } from "../sound/player.tsx";
import { DeleteFiles } from "./delete-files.tsx";

export function FilePage({ id }: { id: string }) {
  const loaded = useLoaded((signal) => client.value.files.get(id, { signal }), [id]);
  const { value: file, error, reload } = loaded;
  useEffect(() => onEvent(({ subject }) => subject.id === id && reload()), [id, reload]);
  const back = <a href={lastList.address}>All files</a>;
  if (isMissing(error)) return <Unloaded what="File" of={loaded} back={back} />;
  return (
    <Page title={file?.originalName ?? "File"} actions={file && <Actions file={file} />}>
      <p>{back}</p>
      <Failure error={error} onRetry={reload} />
      {file ? <Details file={file} /> : !error && <p role="status">Loading …</p>}
    </Page>
  );
}

function Actions({ file }: { file: FileMetadata }) {
  const { run, isRunning, error } = useTask();
  const [isAsked, setAsked] = useState(false);
  const isGone = useRef(false);
  const isDone = file.status === "completed" || file.status === "failed";
  const download = () =>
    run(async () => {
      const link = document.createElement("a");
      link.href = await client.value.files.sign(file._id);
      // It is stored as an attachment with its own name. So marked, the page stays even where it is not.
      link.download = file.originalName;
      link.click();
    });
  const processAgain = () =>
    run(async () => {
      await client.value.files.reprocess(file._id);
      announce("The file is processed again.");
    });
  return (
    <>
      <button type="button" class="button" aria-disabled={isRunning} onClick={download}>
        Download
      </button>
      <button
        type="button"
        class="button"
        aria-disabled={isRunning || !isDone}
        onClick={() => isDone && processAgain()}
      >
        Process again
      </button>
      <button type="button" class="button danger" onClick={() => setAsked(true)}>
        Delete file
      </button>
      <Failure error={error} />
      {isAsked && (
        <DeleteFiles
          files={[file]}
          onGone={() => {
            isGone.current = true;
          }}
          onClose={() => (isGone.current ? navigate(lastList.address) : setAsked(false))}
        />
      )}
    </>
  );
}

const Copyable = ({ text, what }: { text: string; what: string }) => (
  <>
    <code>{text}</code> <CopyButton text={text} what={what} />
  </>
);

function Details({ file }: { file: FileMetadata }) {
  const { audio, failure, processedAt, sha256, size } = file;
  const isHeard = /^(audio|video)\//.test(file.mimeType) && size > 0 && !failure;
  const kind = { 1: "1, mono", 2: "2, stereo" };
  return (
    <>
      {failure && (
        <div class="failure">
          <p>{failure.message}</p>
          <p class="quiet">
            <code>{failure.code}</code>
          </p>
        </div>
      )}
      {isHeard && <Player file={file} />}
      <div class="columns">
        <FactList
          title="File"
          facts={{
            Name: <bdi>{file.originalName}</bdi>,
            Status: (
              <span role="status">
                <StatusBadge status={file.status} />
              </span>
            ),
            Type: file.fileType,
            "Media type": <code>{file.mimeType}</code>,
            Size: `${formatBytes(size)}${size < 1000 ? "" : ` (${formatCount(size)} bytes)`}`,
            Created: <Time at={file.createdAt} />,
            Changed: <Time at={file.updatedAt} />,
            Processed: processedAt && <Time at={processedAt} />,
            Version: file.__v,
            Id: <Copyable text={file._id} what="id" />,
            "SHA-256": sha256 && <Copyable text={sha256} what="SHA-256" />,
            "Stored at": <Copyable text={file.path} what="address" />,
          }}
        />
        <div class="stack">
          <SignedAddress id={file._id} />
          {audio && (
            <FactList
              title="Sound"
              facts={{
                Duration: audio.durationSeconds !== null && formatDuration(audio.durationSeconds),
                Container: audio.container,
                Codec: audio.codec,
                "Sample rate": audio.sampleRate && `${formatCount(audio.sampleRate)} Hz`,
                Channels: audio.channels && (kind[audio.channels as 1 | 2] ?? audio.channels),
                "Bit rate": audio.bitrate && `${formatCount(Math.round(audio.bitrate / 1000))} kbit/s`,
                Lossless: audio.lossless === null ? null : audio.lossless ? "yes" : "no",
              }}
            />
          )}
        </div>
      </div>
      {audio && Object.keys(audio.tags).length > 0 && (
        <section class="card stack">
          <h2>Tags</h2>
          <Tags tags={audio.tags} />
        </section>
      )}
    </>
  );
}

/** The file's own words, shown as text only. */
function Tags({ tags }: { tags: Record<string, string | number> }) {
  return (
    <dl class="facts">
      {Object.entries(tags).map(([name, value]) => (
        <div key={name}>
          <dt>
            <bdi>{name}</bdi>
          </dt>
          <dd>
            <span dir="auto" class="text">
              {value}
            </span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

const LIVES = { 60: "A minute", 3600: "An hour", 86400: "A day", 604800: "A week", own: "So many seconds" };

function SignedAddress({ id }: { id: string }) {
  const [life, setLife] = useState("3600");
  const [made, setMade] = useState<{ address: string; endsAt: string } | null>(null);
  const { run, isRunning, error } = useTask();
  const make = (form: HTMLFormElement) =>
    run(async () => {
      setMade(null);
      const expiresIn = Number(textOf(form, life === "own" ? "expiresIn" : "life"));
      const endsAt = new Date(Date.now() + expiresIn * 1000).toISOString();
      const address = await client.value.files.sign(id, { expiresIn });
      setMade({ address, endsAt });
      // Where the browser does not let it be copied, it is there to be copied by hand.
      await navigator.clipboard.writeText(address).then(
        () => announce("Copied signed address."),
        () => {},
      );
    });
  return (
    <Form
      class="card stack"
      error={error}
      onSend={make}
      end={
        <>
          <button type="submit" class="button" aria-disabled={isRunning}>
            Make signed address
          </button>
          {made && (
            <p role="status">
              <Copyable text={made.address} what="signed address" /> It ends: <Time at={made.endsAt} />
            </p>
          )}
        </>
      }
    >
      <h2>Signed address</h2>
      <p class="quiet">It opens the file to whoever holds it, without a key, until it ends.</p>
      <SelectField label="It lives for" name="life" value={life} onChange={setLife}>
        {Object.entries(LIVES).map(([seconds, label]) => (
          <option key={seconds} value={seconds}>
            {label}
          </option>
        ))}
      </SelectField>
      {life === "own" && (
        <TextField label="Seconds" name="expiresIn" type="number" min={1} max={604_800} defaultValue="600" required />
      )}
    </Form>
  );
}
