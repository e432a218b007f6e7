import { type Reference, type Section, words } from "./document.ts";
import { Inline, Prose } from "./prose.tsx";

/** What the document says of the API as a whole, with its tokens and its error codes. */
export function Introduction(reference: Reference) {
  const { introduction, sections } = reference;
  return (
    <div class="introduction">
      <section id="introduction" tabIndex={-1} data-part aria-labelledby="title">
        <h1 id="title">
          Stowage API <span class="quiet">{reference.version}</span>
        </h1>
        <Prose text={introduction} />
      </section>
      {sections.map((section) => (
        <Part key={section.id} {...section} reference={reference} />
      ))}
    </div>
  );
}

function Part({ id, title, text, reference }: Section & { reference: Reference }) {
  return (
    <section id={id} tabIndex={-1} data-part aria-labelledby={`title-${id}`}>
      <h2 id={`title-${id}`}>{title}</h2>
      <Prose text={text} />
      {id === "authentication" && <Tokens {...reference} />}
      {id === "errors" && <Codes {...reference} />}
    </section>
  );
}

function Tokens({ tokens }: Reference) {
  return (
    <dl class="facts">
      {Object.entries(tokens).map(([name, description]) => (
        <div key={name}>
          <dt>{words(name)}</dt>
          <dd>
            <Inline text={description} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Codes({ codes }: Reference) {
  return (
    <table class="table codes">
      <caption class="visually-hidden">Error codes</caption>
      <thead>
        <tr>
          <th scope="col">Code</th>
          <th scope="col">Status</th>
          <th scope="col">Meaning</th>
        </tr>
      </thead>
      <tbody>
        {codes.map(({ code, status, meaning }) => (
          <tr key={code} id={`error-${code}`} tabIndex={-1}>
            <th scope="row">
              <code>{code}</code>
            </th>
            <td data-label="Status">{status}</td>
            <td data-label="Meaning">
              <span>
                <Inline text={meaning} />
              </span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
