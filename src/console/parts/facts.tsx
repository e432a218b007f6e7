import type { ComponentChildren } from "preact";

/** What is known of a thing, by name; what is not known is left out. */
export function FactList({ title, facts }: { title: string; facts: Record<string, ComponentChildren> }) {
  const known = Object.entries(facts).filter(([, value]) => value !== null && value !== undefined);
  return (
    <section class="card stack">
      <h2>{title}</h2>
      <dl class="facts">
        {known.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
