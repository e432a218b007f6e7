import { useEffect } from "preact/hooks";
import { can, client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";
import { countOf } from "../parts/format.ts";

/** No event says that a webhook fails. Its page and the list ask more often. */
const RELOAD_MILLISECONDS = 300_000;

/** Says in the navigation how many webhooks fail. Nothing if none does. */
export function FailingDot() {
  const { value = 0, reload } = useData(
    ["failing-webhooks"],
    async (signal) => {
      if (!can("webhooks:read")) return 0;
      const { items } = await client.value.webhooks.list({ signal });
      return items.filter(({ health }) => health === "failing").length;
    },
    { of: ["webhook"] },
  );
  useEffect(() => {
    const timer = setInterval(reload, RELOAD_MILLISECONDS);
    return () => clearInterval(timer);
  }, [reload]);
  if (value === 0) return null;
  return (
    <span class="badge bad" title={`${countOf(value, "webhook")} failing`}>
      {value}
      <span class="visually-hidden"> failing</span>
    </span>
  );
}
