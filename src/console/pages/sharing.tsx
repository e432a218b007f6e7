import { useState } from "preact/hooks";
import type { FileMetadata, Link } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { NameOf, useNames } from "../parts/event.tsx";
import { Failure } from "../parts/failure.tsx";
import { Form, SelectField, TextField, textOf } from "../parts/form.tsx";
import { useLoaded } from "../parts/loading.ts";
import { useTask } from "../parts/task.ts";
import { Copyable, Time } from "../parts/values.tsx";
import { client } from "../session.ts";

/** In seconds. */
const LINK_LIFETIMES = { 3600: "1 hour", 86400: "1 day", 604800: "7 days", 2592000: "30 days", "": "Never" };
const SIGNED_LIFETIMES = { 60: "1 minute", 3600: "1 hour", 86400: "1 day", 604800: "7 days", custom: "Custom" };
const MAX_SIGNED_SECONDS = 604_800;

const expiryIn = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString();

/** Copies a new URL. If the browser denies this, the user copies the shown URL. */
const copy = (url: string, name: string) =>
  navigator.clipboard.writeText(url).then(
    () => announce(`${name} copied`),
    () => {},
  );

const options = (labels: Record<string, string>) =>
  Object.entries(labels).map(([value, label]) => (
    <option key={value} value={value}>
      {label}
    </option>
  ));

/** Creates, lists, and revokes the links of a file, and creates signed URLs. */
export function Sharing({ file }: { file: FileMetadata }) {
  const { _id: id } = file;
  const links = useLoaded((signal) => client.value.links.list(id, { signal }), [id]);
  const [created, setCreated] = useState<{ id: string; url: string } | null>(null);
  return (
    <section class="card stack" aria-labelledby="sharing">
      <h2 id="sharing">Share</h2>
      <NewLink
        file={file}
        created={created}
        onCreated={({ _id, url }) => {
          setCreated({ id: _id, url });
          links.reload();
        }}
      />
      <Failure error={links.error} onRetry={links.reload} />
      {links.value && links.value.length > 0 && (
        <Links
          links={links.value}
          onRevoked={(linkId) => {
            if (created?.id === linkId) setCreated(null);
            links.change((before) => before.filter(({ _id }) => _id !== linkId));
          }}
        />
      )}
      <details>
        <summary>Signed URL</summary>
        <SignedUrl id={id} />
      </details>
    </section>
  );
}

interface NewLinkProps {
  file: FileMetadata;
  created: { url: string } | null;
  onCreated: (link: Link & { url: string }) => void;
}

function NewLink({ file, created, onCreated }: NewLinkProps) {
  const [lifetime, setLifetime] = useState("604800");
  const { run, isRunning, error } = useTask();
  const create = (form: HTMLFormElement) =>
    run(async () => {
      const link = await client.value.links.create(file._id, {
        expiresAt: lifetime === "" ? null : expiryIn(Number(lifetime)),
        disposition: textOf(form, "disposition") === "inline" ? "inline" : "attachment",
      });
      onCreated(link);
      await copy(link.url, "Link");
    });
  return (
    <Form
      error={error}
      onSubmit={create}
      end={
        <>
          <button type="submit" class="button" aria-disabled={isRunning}>
            Create link
          </button>
          {created && (
            <div role="status" class="secret">
              <p>Save this link. You won't be able to see it again.</p>
              <p>
                <Copyable text={created.url} label="link" />
              </p>
            </div>
          )}
        </>
      }
    >
      <p class="quiet">Anyone with a link can open the file until the link expires or you revoke it.</p>
      <SelectField label="Expires in" name="expiresAt" value={lifetime} onChange={setLifetime}>
        {options(LINK_LIFETIMES)}
      </SelectField>
      {file.mimeType.startsWith("audio/") && (
        <SelectField label="Opens as" name="disposition">
          {options({ attachment: "Download", inline: "Player in the browser" })}
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
        await client.value.links.revoke(id);
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
          <button type="button" class="button small danger" onClick={() => revoke(_id)}>
            Revoke<span class="visually-hidden"> link</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function SignedUrl({ id }: { id: string }) {
  const [lifetime, setLifetime] = useState("3600");
  const [signed, setSigned] = useState<{ url: string; expiresAt: string } | null>(null);
  const { run, isRunning, error } = useTask();
  const create = (form: HTMLFormElement) =>
    run(async () => {
      setSigned(null);
      const expiresIn = Number(textOf(form, lifetime === "custom" ? "expiresIn" : "lifetime"));
      const expiresAt = expiryIn(expiresIn);
      const url = await client.value.files.createSignedUrl(id, { expiresIn });
      setSigned({ url, expiresAt });
      await copy(url, "URL");
    });
  return (
    <Form
      error={error}
      onSubmit={create}
      end={
        <>
          <button type="submit" class="button" aria-disabled={isRunning}>
            Create URL
          </button>
          {signed && (
            <p role="status">
              <Copyable text={signed.url} label="URL" /> Expires <Time at={signed.expiresAt} />
            </p>
          )}
        </>
      }
    >
      <p class="quiet">Opens the file straight from storage for up to 7 days. It can't be revoked.</p>
      <SelectField label="Expires in" name="lifetime" value={lifetime} onChange={setLifetime}>
        {options(SIGNED_LIFETIMES)}
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
    </Form>
  );
}
