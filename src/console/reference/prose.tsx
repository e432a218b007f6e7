import type { ComponentChild } from "preact";

/** Text whose pieces between backticks are code. */
export function Inline({ text }: { text: string }) {
  return <>{text.split("`").map((piece, place) => (place % 2 ? <code key={place}>{piece}</code> : piece))}</>;
}

/** Paragraphs of CommonMark, of which our descriptions use no more than code. */
export function Prose({ text }: { text: string }) {
  const paragraphs = text.split(/\n+/).filter(Boolean);
  return (
    <>
      {paragraphs.map((paragraph) => (
        <p key={paragraph}>
          <Inline text={paragraph} />
        </p>
      ))}
    </>
  );
}

const TOKENS =
  /("(?:[^"\\\n]|\\.)*")(?=(\s*:)?)|`[^`]*`|'[^'\n]*'|(?<=[\s([])(?:-?\d+(?:\.\d+)?|true|false|null|const|await|new|for|of)\b|^(?:const|await|for)\b/gm;

/** JSON, JavaScript or a shell's line with its strings and its words and numbers told apart. */
function highlighted(code: string): ComponentChild[] {
  const pieces: ComponentChild[] = [];
  let end = 0;
  for (const { 0: text, 2: colon, index } of code.matchAll(TOKENS)) {
    const kind = /^["'`]/.test(text) ? (colon ? "" : "string") : "word";
    if (kind === "") continue;
    pieces.push(code.slice(end, index), <span class={kind}>{text}</span>);
    end = index + text.length;
  }
  return [...pieces, code.slice(end)];
}

export function Code({ text }: { text: string }) {
  return (
    <pre>
      <code>{highlighted(text)}</code>
    </pre>
  );
}
