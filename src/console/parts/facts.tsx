import type { ComponentChildren } from "preact";

/** Named values. Those that are empty or undefined are left out. */
export const Facts = ({ facts }: { facts: Record<string, ComponentChildren> }) => (
  <dl class="facts">
    {Object.entries(facts)
      .filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "")
      .map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
  </dl>
);

/** A card of named values. */
export const FactCard = ({ title, facts }: { title: string; facts: Record<string, ComponentChildren> }) => (
  <section class="card stack">
    <h2>{title}</h2>
    <Facts facts={facts} />
  </section>
);
