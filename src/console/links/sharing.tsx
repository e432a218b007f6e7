import { useState } from "preact/hooks";
import type { FileMetadata, Link, NewLink } from "../../client/index.ts";
import { NameOf } from "../events/names.tsx";
import { Dialog, removeRecord } from "../framework/dialog.tsx";
import { client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";
import { useTask } from "../framework/task.ts";
import { copy } from "../parts/copy.tsx";
import { Failure } from "../parts/failure.tsx";
import { Form, SelectField } from "../parts/form.tsx";
import { formatDuration, formatTenths } from "../parts/format.ts";
import { Menu } from "../parts/menu.tsx";
import { Time } from "../parts/values.tsx";
import { formatClip } from "../sound/controls.tsx";
import { usePlace } from "../sound/play-button.tsx";
import { type Clip, clip, fragmentOf, type Part } from "../sound/playback.ts";
import { pageTrack, type Track } from "../sound/player-state.ts";

/** In seconds, and "" for never. */
const LIFETIMES = { 3600: "1 hour", 86400: "1 day", 604800: "7 days", 2592000: "30 days", "": "Never" };
const TYPES = { page: "Link", file: "Download link", embed: "Embed code" };
const EMBED_HEIGHT = 120;

const embedCode = (pageUrl: string) =>
  `<iframe src="${pageUrl.replace("/share/", "/embed/")}" width="100%" height="${EMBED_HEIGHT}" style="border:0"></iframe>`;

const expiryIn = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString();

/** A link that this page has created. Nothing else knows its URL. */
type Created = { link: NewLink; lifetime: string } | null;

/** The form on the page of a file. */
export const SHARE_FORM = "share-form";

const useLinks = (id: string) =>
  useData(["links", id], (signal) => client.value.links.list(id, { signal }).toArray(), {
    of: ["link"],
    on: ({ type, data }) => (type === "link.created" || type === "link.revoked") && data.fileId === id,
  });

/** Creates, lists, and revokes the links of a file. */
export function Sharing({ file }: { file: FileMetadata }) {
  const { _id: id } = file;
  const links = useLinks(id);
  const [created, setCreated] = useState<Created>(null);
  const [copiedId, setCopiedId] = useState("");
  return (
    <section class="card stack sharing" id="share-panel" aria-labelledby="sharing">
      <h2 id="sharing">Share</h2>
      <LinkForm id={SHARE_FORM} file={file} created={created} onCreated={setCreated} onCopied={setCopiedId} />
      <Failure error={links.error} onRetry={links.reload} />
      {links.value && links.value.length > 0 && (
        <Links
          links={links.value}
          isAudio={file.mimeType.startsWith("audio/")}
          copiedId={copiedId}
          onRevoked={(linkId) => created?.link._id === linkId && setCreated(null)}
        />
      )}
    </section>
  );
}

/** The dialog of `shareFile`. */
export function ShareDialog({ file, onClose }: { file: Track; onClose: () => void }) {
  const [created, setCreated] = useState<Created>(null);
  return (
    <Dialog title={`Share ${file.name}`} onClose={onClose}>
      <div class="stack">
        <LinkForm file={file} created={created} onCreated={setCreated} />
        <div class="actions">
          <button type="button" class="button" onClick={onClose}>
            Done
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** Opens the device's sheet of ways to send something. Whoever closes it has chosen not to. */
const sendByDevice = (title: string, url: string) => navigator.share({ title, url }).catch(() => {});

type Options = Pick<Link, "disposition"> & { startSeconds?: number | undefined; endSeconds?: number | undefined };

/** Whether a link has these options. A link without its own part plays the part that its URL names. */
const isFor = (link: NewLink, { disposition, startSeconds, endSeconds }: Options): boolean =>
  link.disposition === disposition &&
  (link.startSeconds === null || (link.startSeconds === startSeconds && link.endSeconds === (endSeconds ?? null)));

interface LinkFormProps {
  id?: string;
  file: Track;
  created: Created;
  onCreated: (created: Created) => void;
  onCopied?: (id: string) => void;
}

/** Copies a link, and shows it in case the browser denies that. The same options give the same link. */
function LinkForm({ id, file, created, onCreated, onCopied }: LinkFormProps) {
  const [lifetime, setLifetime] = useState("604800");
  const [type, setType] = useState<keyof typeof TYPES>("page");
  const { run, isRunning, error } = useTask();
  const { seconds } = usePlace(file);
  const marked = pageTrack.value?._id === file._id ? clip.value : null;
  // A clip is what the link plays once it is marked. What plays meanwhile does not change the chosen part.
  const [choice, setChoice] = useState<{ of: Clip | null; part: Part | null }>({ of: marked, part: marked });
  const chosen = choice.of === marked ? choice.part : marked;
  const setChosen = (part: Part | null) => setChoice({ of: marked, part });
  const part = chosen ?? marked ?? { from: seconds };
  const isAudio = file.mimeType.startsWith("audio/");
  const isPage = type !== "file";
  const disposition = isAudio && isPage ? "inline" : "attachment";
  const own = isAudio && isPage && chosen ? { startSeconds: chosen.from, endSeconds: chosen.to } : {};
  const link = created?.lifetime === lifetime && isFor(created.link, { disposition, ...own }) ? created.link : null;
  const urlOf = ({ url, pageUrl }: NewLink) => {
    if (!isPage) return url;
    const start = chosen ? `${pageUrl}#t=${fragmentOf(chosen)}` : pageUrl;
    return type === "embed" ? embedCode(start) : start;
  };
  const label = TYPES[type];
  const isClip = isAudio && isPage && chosen?.to !== undefined;
  const create = async () => {
    if (link) return link;
    const expiresAt = lifetime === "" ? null : expiryIn(Number(lifetime));
    const next = await client.value.links.create(file._id, { expiresAt, disposition, ...own });
    onCreated({ link: next, lifetime });
    return next;
  };
  const copyLink = () =>
    run(async () => {
      const creating = create();
      if (await copy(creating.then(urlOf), label.toLowerCase())) onCopied?.((await creating)._id);
    });
  return (
    <Form
      id={id}
      error={error}
      onSubmit={copyLink}
      end={
        <>
          <button type="submit" class="button primary start" aria-disabled={isRunning}>
            Copy {label.toLowerCase()}
            {isClip && ` ${type === "embed" ? "for" : "to"} ${formatClip(chosen as Clip)}`}
          </button>
          {link && (
            <div role="status" class="secret">
              <p>We don't keep the link. Copy it now. You can create another link at any time.</p>
              <code>{urlOf(link)}</code>
              {type !== "embed" && "share" in navigator && (
                <button type="button" class="button start" onClick={() => void sendByDevice(file.name, urlOf(link))}>
                  Send
                </button>
              )}
            </div>
          )}
          <details>
            <summary>Options</summary>
            <div class="stack">
              <SelectField
                label="Expires in"
                name="expiresAt"
                value={lifetime}
                onChange={setLifetime}
                options={LIFETIMES}
              />
              <SelectField
                label="Copy as"
                name="type"
                value={type}
                onChange={(next) => setType(next as typeof type)}
                options={TYPES}
              />
            </div>
          </details>
        </>
      }
    >
      <p class="quiet">
        Anyone with the link can {isAudio && isPage && "listen and "}download{" "}
        {lifetime && `for ${LIFETIMES[lifetime as keyof typeof LIFETIMES]}, or `}until you revoke it.
      </p>
      {isAudio && isPage && (part.from > 0 || part.to) && (
        <label>
          <input
            type="checkbox"
            checked={chosen !== null}
            onChange={({ currentTarget }) => setChosen(currentTarget.checked ? part : null)}
          />{" "}
          <span>
            Start at{" "}
            {(chosen ?? marked) ? (
              formatTenths(part.from)
            ) : (
              <>
                {/* Screen readers would read a name that follows the position each second. */}
                <span aria-hidden="true">{formatDuration(part.from)}</span>
                <span class="visually-hidden">the present moment</span>
              </>
            )}
            {part.to && `, end at ${formatTenths(part.to)}`}
            {isClip && (
              <>
                <br />
                <span class="hint">They can still play and download the rest.</span>
              </>
            )}
          </span>
        </label>
      )}
    </Form>
  );
}

interface LinksProps {
  links: Link[];
  isAudio: boolean;
  /** The link that was copied last. */
  copiedId: string;
  onRevoked: (id: string) => void;
}

/** Describes what the link does for its visitors. */
function describeUse(link: Pick<Link, "disposition" | "startSeconds" | "endSeconds">, isAudio: boolean): string {
  const from = link.startSeconds ?? 0;
  const to = link.endSeconds;
  const part = to !== null ? formatClip({ from, to }) : from > 0 ? `from ${formatTenths(from)}` : undefined;
  const isDownload = link.disposition === "attachment";
  if (!isAudio) return isDownload ? "Downloads the file" : "Opens in the browser";
  // The page of a download plays, too.
  if (isDownload) return part ? `Downloads the file, and plays ${part}` : "Downloads the file";
  return `Plays ${part ?? "the recording"}`;
}

function Links({ links, isAudio, copiedId, onRevoked }: LinksProps) {
  const revoke = (id: string) =>
    removeRecord({
      id,
      title: "Revoke link?",
      text: "The link stops working immediately. This can't be undone.",
      action: "Revoke link",
      run: async () => {
        await client.value.links.delete(id);
        onRevoked(id);
      },
      done: "Link revoked",
    });
  return (
    <ul class="links" aria-label="Links">
      {links.map(({ _id, name, createdAt, createdBy, expiresAt, ...link }) => (
        <li key={_id}>
          <div>
            <p>
              {name && (
                <>
                  <strong>
                    <bdi>{name}</bdi>
                  </strong>
                  {" · "}
                </>
              )}
              {describeUse(link, isAudio)}
              {" · "}
              {expiresAt === null ? (
                "never expires"
              ) : Date.parse(expiresAt) <= Date.now() ? (
                <span class="badge bad">Expired</span>
              ) : (
                <>
                  expires <Time at={expiresAt} isRelative />
                </>
              )}{" "}
              {_id === copiedId && <span class="badge good">Copied just now</span>}
            </p>
            <p class="quiet">
              Created <Time at={createdAt} isRelative /> by <NameOf {...createdBy} />
            </p>
          </div>
          <Menu
            label="Actions for this link"
            items={[
              { label: "Copy ID", icon: "copy", run: () => copy(_id, "ID") },
              { label: "Revoke link", icon: "trash", isDangerous: true, run: () => revoke(_id) },
            ]}
          />
        </li>
      ))}
    </ul>
  );
}
