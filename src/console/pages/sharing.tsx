import { useState } from "preact/hooks";
import type { FileMetadata, Link, NewLink } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { NameOf, useNames } from "../parts/event.tsx";
import { Failure } from "../parts/failure.tsx";
import { Form, SelectField, TextField, textOf } from "../parts/form.tsx";
import { Menu } from "../parts/menu.tsx";
import { useTask } from "../parts/task.ts";
import { Copyable, CopyButton, Time } from "../parts/values.tsx";
import { client } from "../session.ts";
import { clip } from "../sound/playback.ts";
import { SHARE_CLIP } from "../sound/player.tsx";
import { useData } from "../store.ts";

/** In seconds, and for a link with "" for never. */
const LIFETIMES = {
  link: { 3600: "1 hour", 86400: "1 day", 604800: "7 days", 2592000: "30 days", "": "Never" },
  signed: { 60: "1 minute", 3600: "1 hour", 86400: "1 day", 604800: "7 days", custom: "Custom" },
};
const DEFAULT_LIFETIMES = { link: "604800", signed: "3600" };
const NOTES = {
  link: "Anyone with the link can listen on its page, and download, until it expires or you revoke it.",
  signed: "Anyone with a signed URL can download the file until it expires. It can't be revoked.",
};
const MAX_SIGNED_SECONDS = 604_800;

type Kind = keyof typeof LIFETIMES;

/** A new URL; of a link, that of its page. */
interface Created {
  url: string;
  link: NewLink | null;
  expiresAt: string | null;
}

const EMBED_HEIGHT = 120;
const embedCode = (pageUrl: string) =>
  `<iframe src="${pageUrl.replace("/share/", "/embed/")}" width="100%" height="${EMBED_HEIGHT}" style="border:0"></iframe>`;

const expiryIn = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString();

const options = (labels: Record<string, string>) =>
  Object.entries(labels).map(([value, label]) => (
    <option key={value} value={value}>
      {label}
    </option>
  ));

/** Creates, lists, and revokes the links of a file, and creates signed URLs. */
export function Sharing({ file }: { file: FileMetadata }) {
  const { _id: id } = file;
  const links = useData(`links ${id}`, (signal) => client.value.links.list(id, { signal }).toArray());
  const [created, setCreated] = useState<Created | null>(null);
  return (
    <section class="card stack" aria-labelledby="sharing">
      <h2 id="sharing">Share</h2>
      <NewUrl
        file={file}
        created={created}
        onCreated={(next) => {
          setCreated(next);
          if (next?.link) links.reload();
        }}
      />
      <Failure error={links.error} onRetry={links.reload} />
      {links.value && links.value.length > 0 && (
        <Links
          links={links.value}
          onRevoked={(linkId) => {
            if (created?.link?._id === linkId) setCreated(null);
            links.change((before) => before.filter(({ _id }) => _id !== linkId));
          }}
        />
      )}
    </section>
  );
}

interface NewUrlProps {
  file: FileMetadata;
  created: Created | null;
  onCreated: (created: Created | null) => void;
}

/** The form for a link or a signed URL. It copies the new URL, and shows it in case the browser denies that. */
function NewUrl({ file, created, onCreated }: NewUrlProps) {
  const [kind, setKind] = useState<Kind>("link");
  const [lifetime, setLifetime] = useState(DEFAULT_LIFETIMES.link);
  const { run, isRunning, error } = useTask();
  const isLink = kind === "link";
  const chooseKind = (chosen: string) => {
    setKind(chosen as Kind);
    setLifetime(DEFAULT_LIFETIMES[chosen as Kind]);
  };
  const create = (form: HTMLFormElement, submitter: HTMLElement | null) =>
    run(async () => {
      // A media fragment, which browsers understand in the file link, too.
      const part = submitter?.id === SHARE_CLIP ? clip.peek() : null;
      const onPart = (url: string) => (part ? `${url}#t=${part.from},${part.to}` : url);
      onCreated(null);
      const expiresIn = Number(lifetime === "custom" ? textOf(form, "expiresIn") : lifetime);
      const expiresAt = lifetime === "" ? null : expiryIn(expiresIn);
      const disposition = part || textOf(form, "disposition") === "inline" ? "inline" : "attachment";
      const { links, files } = client.value;
      const link = part || isLink ? await links.create(file._id, { expiresAt, disposition }) : null;
      const next = link
        ? { url: onPart(link.pageUrl), link: { ...link, url: onPart(link.url) } }
        : { url: await files.createSignedUrl(file._id, { expiresIn }), link };
      onCreated({ ...next, expiresAt });
      await navigator.clipboard.writeText(next.url).then(
        () => announce(`${part ? "Clip link" : link ? "Page link" : "URL"} copied`),
        () => {},
      );
    });
  return (
    <Form
      error={error}
      onSubmit={create}
      end={
        <>
          <button type="submit" class="button start" aria-disabled={isRunning}>
            {isLink ? "Create link" : "Create URL"}
          </button>
          {/* After the other, which Enter presses. */}
          <button type="submit" id={SHARE_CLIP} hidden aria-disabled={isRunning} />
          {created && (
            <div role="status" class="secret">
              {created.link ? (
                <p>Save these links. You won't be able to see them again.</p>
              ) : (
                created.expiresAt && (
                  <p>
                    Expires <Time at={created.expiresAt} />
                  </p>
                )
              )}
              {created.link ? (
                <>
                  <p>
                    <code>{created.url}</code>
                  </p>
                  <p class="actions">
                    <CopyButton text={created.url} label="page link" class="primary">
                      Copy page link
                    </CopyButton>
                    <CopyButton text={created.link.url} label="file link" class="">
                      Copy file link
                    </CopyButton>
                    <CopyButton text={embedCode(created.url)} label="embed code" class="">
                      Copy embed code
                    </CopyButton>
                  </p>
                </>
              ) : (
                <p>
                  <Copyable text={created.url} label="URL" />
                </p>
              )}
            </div>
          )}
        </>
      }
    >
      <SelectField label="Type" name="kind" value={kind} onChange={chooseKind}>
        {options({ link: "Link", signed: "Signed URL" })}
      </SelectField>
      <p class="quiet">{NOTES[kind]}</p>
      <SelectField label="Expires in" name="expiresAt" value={lifetime} onChange={setLifetime}>
        {options(LIFETIMES[kind])}
      </SelectField>
      {lifetime === "custom" && (
        <TextField
          label="Seconds"
          name="expiresIn"
          type="number"
          min={1}
          max={MAX_SIGNED_SECONDS}
          defaultValue="600"
          required
        />
      )}
      {isLink && file.mimeType.startsWith("audio/") && (
        <SelectField label="File link opens as" name="disposition">
          {options({ inline: "Player in the browser", attachment: "Download" })}
        </SelectField>
      )}
    </Form>
  );
}

function Links({ links, onRevoked }: { links: Link[]; onRevoked: (id: string) => void }) {
  useNames();
  const revoke = (id: string) =>
    confirmFirst({
      title: "Revoke link?",
      text: "The link stops working immediately. This can't be undone.",
      action: "Revoke link",
      onConfirm: async () => {
        await client.value.links.delete(id);
        announce("Link revoked");
        onRevoked(id);
      },
    });
  return (
    <ul class="links" aria-label="Links">
      {links.map(({ _id, createdAt, createdBy, disposition, expiresAt }) => (
        <li key={_id}>
          <div>
            <p>
              {disposition === "inline" ? "Plays in the browser" : "Download"}
              {" · "}
              {expiresAt === null ? (
                "never expires"
              ) : Date.parse(expiresAt) <= Date.now() ? (
                <span class="badge bad">Expired</span>
              ) : (
                <>
                  expires <Time at={expiresAt} isRelative />
                </>
              )}
            </p>
            <p class="quiet">
              Created <Time at={createdAt} isRelative /> by <NameOf {...createdBy} />
            </p>
          </div>
          <Menu
            label="Actions for this link"
            items={[{ label: "Revoke link", icon: "trash", isDangerous: true, onSelect: () => revoke(_id) }]}
          />
        </li>
      ))}
    </ul>
  );
}
