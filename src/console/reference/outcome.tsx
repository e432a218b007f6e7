import { RequestId } from "../parts/failure.tsx";
import { formatBytes } from "../parts/values.tsx";
import { type Call, curlOf } from "./call.ts";
import { Code } from "./prose.tsx";
import { Sample } from "./samples.tsx";
import type { Answer } from "./sending.ts";

/** What came of a call, or why none was sent. */
export type Outcome =
  | { kind: "asking" | "sending" }
  | { kind: "answer"; answer: Answer }
  | { kind: "failed"; message: string };

/** What is sent, without the token. */
export function AsCurl({ call, summary }: { call: () => Call; summary: string }) {
  let text: string;
  try {
    text = curlOf(call(), location.origin);
  } catch {
    return null;
  }
  return <Sample name="This request" of={summary} text={text} />;
}

export function Result({ outcome, summary }: { outcome: Outcome | null; summary: string }) {
  const answer = outcome?.kind === "answer" ? outcome.answer : undefined;
  const isFailure = outcome?.kind === "failed" || (answer && answer.status >= 400);
  return (
    <div class="outcome">
      <div role="status" class={isFailure ? "failure" : undefined}>
        {outcome?.kind === "sending" && <p>Sending…</p>}
        {outcome?.kind === "failed" && <p>{outcome.message}</p>}
        {answer && (
          <>
            <p>
              <strong>{answer.status}</strong> in {answer.milliseconds} ms{answer.message && `: ${answer.message}`}
            </p>
            <RequestId of={answer} />
          </>
        )}
      </div>
      {answer && (
        <>
          {answer.text ? (
            // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reached by the keyboard.
            <section class="answer" aria-label={`Answer: ${summary}`} tabIndex={0}>
              <Code text={answer.text} />
            </section>
          ) : (
            <p class="quiet">{answer.bytes === 0 ? "No body." : `Body of ${formatBytes(answer.bytes)}, not shown.`}</p>
          )}
          <details>
            <summary>Headers</summary>
            <dl class="facts">
              {answer.headers.map(([name, value]) => (
                <div key={name}>
                  <dt>
                    <code>{name}</code>
                  </dt>
                  <dd>
                    <code>{value}</code>
                  </dd>
                </div>
              ))}
            </dl>
          </details>
        </>
      )}
    </div>
  );
}
