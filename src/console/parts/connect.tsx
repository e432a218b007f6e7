import { useState } from "preact/hooks";
import type { ApiKey } from "../../client/index.ts";
import { Segments } from "./choice.tsx";
import { CopyButton } from "./copy.tsx";
import { Icon } from "./icon.tsx";

export const uploadCommand = (key: string, url: string): string =>
  `curl -H "Authorization: Bearer ${key}" \\\n  -F "file=@recording.mp3" \\\n  ${url}/docs/v1/uploads`;

/** How to use a new key, with the real URL and key. */
function samplesFor({ key, isPublic }: Pick<ApiKey, "key" | "isPublic">, url: string): Record<string, string> {
  const curl = uploadCommand(key, url);
  if (!isPublic)
    return {
      ".env": `STOWAGE_URL=${url}\nSTOWAGE_KEY=${key}`,
      curl,
      JavaScript: `import { Stowage } from "stowage";

const stowage = new Stowage({
  url: process.env.STOWAGE_URL,
  key: process.env.STOWAGE_KEY,
});
const { id } = await stowage.files.upload("recording.mp3");`,
    };
  return {
    JavaScript: `const form = new FormData();
form.append("file", input.files[0]);
await fetch("${url}/docs/v1/uploads", {
  method: "POST",
  headers: { Authorization: "Bearer ${key}" },
  body: form,
});`,
    curl,
  };
}

interface CodeProps {
  text: string;
  /** Names it in the announcement that it is copied. */
  label: string;
  onCopied?: () => void;
}

/** Code with a button that copies it. */
export const Code = ({ text, label, onCopied }: CodeProps) => (
  <div class="code">
    {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines scroll, also by keyboard. */}
    <pre tabIndex={0}>{text}</pre>
    <CopyButton text={text} label={label} {...(onCopied && { onCopied })} />
  </div>
);

/** Code that uses a new key, in several languages. */
export function Connect({ apiKey, onCopied }: { apiKey: Pick<ApiKey, "key" | "isPublic">; onCopied: () => void }) {
  const samples = samplesFor(apiKey, location.origin);
  const [chosen, setChosen] = useState(Object.keys(samples)[0] ?? "");
  const text = samples[chosen] ?? "";
  return (
    <div class="stack">
      <Segments
        label="Language"
        options={Object.fromEntries(Object.keys(samples).map((name) => [name, name]))}
        chosen={chosen}
        onChoose={setChosen}
      />
      <Code text={text} label={`${chosen} sample`} onCopied={onCopied} />
      <p class="quiet">
        <a href="/reference" target="_blank" rel="noreferrer">
          Open the API reference <Icon name="external" size={12} />
        </a>
      </p>
    </div>
  );
}
