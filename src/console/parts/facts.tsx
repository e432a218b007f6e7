import type { ComponentChildren } from "preact";

interface FactsProps {
  facts: Record<string, ComponentChildren>;
  /** Shows only the values, one after the other. */
  isRow?: boolean;
}

/** Named values. Those that are empty or undefined are left out. */
export function Facts({ facts, isRow = false }: FactsProps) {
  const shown = Object.entries(facts).filter(
    ([, value]) => value !== null && value !== undefined && value !== false && value !== "",
  );
  if (shown.length === 0) return null;
  return (
    <dl class={isRow ? "fact-row" : "facts"}>
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt class={isRow ? "visually-hidden" : undefined}>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A card of named values. */
export const FactCard = ({ title, facts, children }: FactsProps & { title: string; children?: ComponentChildren }) => (
  <section class="card stack">
    <h2>{title}</h2>
    <Facts facts={facts} />
    {children}
  </section>
);
