import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { Announcements } from "../parts/announce.tsx";
import { Failure } from "../parts/failure.tsx";
import { Refusal } from "../refusal.ts";
import { reloadOnReturn } from "../token.ts";
import { type Reference, readDocument } from "./document.ts";
import { Introduction } from "./introduction.tsx";
import { Navigation } from "./navigation.tsx";
import { OperationGroup } from "./operation.tsx";
import { Part, showParts } from "./parts.tsx";
import { followPlace } from "./place.ts";
import { NamedSchema } from "./schema.tsx";
import { Search } from "./search.tsx";
import { reach } from "./sending.ts";
import "../styles/reference.css";

const DOCUMENT = "/openapi.json";
const reference = signal<Reference | null>(null);
const failure = signal<unknown>(null);

async function load(): Promise<void> {
  failure.value = null;
  try {
    const response = await reach(DOCUMENT);
    if (!response.ok) throw new Refusal(`${DOCUMENT} was answered ${response.status}.`);
    reference.value = read(await response.text());
  } catch (error) {
    failure.value = error;
  }
}

function read(text: string): Reference {
  try {
    return readDocument(JSON.parse(text));
  } catch (error) {
    reportError(error);
    throw new Refusal(`${DOCUMENT} is not of the shape that this page shows.`);
  }
}

function Page() {
  const loaded = reference.value;
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header class="bar">
        <a class="brand" href="/">
          <img src="/assets/icon.svg" alt="" width="24" height="24" /> Stowage
        </a>
        {loaded && <Search reference={loaded} />}
        <nav aria-label="Elsewhere">
          <a href="/console">Console</a>
          <a href={DOCUMENT}>openapi.json</a>
        </nav>
      </header>
      {loaded ? <Content {...loaded} /> : <Waiting />}
      <Announcements />
    </>
  );
}

function Waiting() {
  return (
    <main id="content">
      <h1>Stowage API</h1>
      <Failure error={failure.value} onRetry={load} />
    </main>
  );
}

function Content(loaded: Reference) {
  const { groups, schemas } = loaded;
  const all = groups.flatMap(({ operations }) => operations);
  const named = Object.entries(schemas);
  useEffect(() => showParts(all.length + named.length, followPlace), []);
  return (
    <div class="pages">
      <Navigation {...loaded} />
      <main id="content" tabIndex={-1}>
        <Introduction {...loaded} />
        {groups.map((group) => (
          <OperationGroup key={group.id} {...group} all={all} />
        ))}
        <section id="schemas" tabIndex={-1} data-part aria-labelledby="title-schemas" class="group">
          <header class="group-header">
            <h2 id="title-schemas">Schemas</h2>
            <p>What several operations send or answer.</p>
          </header>
          {named.map(([name, schema], place) => (
            <Part key={name} place={all.length + place}>
              <NamedSchema name={name} schema={schema} />
            </Part>
          ))}
        </section>
      </main>
    </div>
  );
}

reloadOnReturn();
render(<Page />, document.getElementById("page") as HTMLElement);
await load();
