import { signal } from "@preact/signals";
import type { ComponentChild } from "preact";
import { CopyButton } from "../parts/values.tsx";
import { curlOf, exampleCall, fetchOf, jsonText } from "./call.ts";
import type { Operation } from "./document.ts";
import { Code } from "./prose.tsx";

const LANGUAGES = ["curl", "JavaScript", "Client"] as const;
type Language = (typeof LANGUAGES)[number];

/** One choice for the whole page. */
const language = signal<Language>("curl");

/** Code with its name, or what chooses it, and a button that copies it; `of` tells it from others of that name. */
export function Sample({
  name,
  of,
  text,
  choice,
}: {
  name: string;
  of: string;
  text: string;
  choice?: ComponentChild;
}) {
  return (
    <figure class="sample">
      <figcaption>
        {choice ?? <span>{name}</span>}
        <CopyButton text={text} what={`${name}: ${of}`} />
      </figcaption>
      <Code text={text} />
    </figure>
  );
}

/** The request in the language that is chosen, and what is answered. */
export function Samples({ operation, all }: { operation: Operation; all: Operation[] }) {
  const { id, summary, clientSample, responses } = operation;
  const call = exampleCall(operation, all);
  const texts: Partial<Record<Language, string>> = {
    curl: curlOf(call, location.origin),
    JavaScript: fetchOf(call, location.origin),
    ...(clientSample && { Client: clientSample }),
  };
  const shown = language.value in texts ? language.value : "curl";
  const success = responses.find(({ status }) => status < "300");
  const example = success?.content?.example;
  const choice = (
    <fieldset class="segments">
      <legend class="visually-hidden">Language of the example: {summary}</legend>
      {LANGUAGES.filter((one) => one in texts).map((one) => (
        <label key={one}>
          <input
            type="radio"
            name={`language-${id}`}
            checked={one === shown}
            onChange={() => {
              language.value = one;
            }}
          />
          {one}
        </label>
      ))}
    </fieldset>
  );
  return (
    <div class="samples">
      <Sample name={shown} of={summary} text={texts[shown] ?? ""} choice={choice} />
      {example !== undefined && <Sample name={`Response ${success?.status}`} of={summary} text={jsonText(example)} />}
    </div>
  );
}
