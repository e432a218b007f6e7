import { Page } from "../parts/page.tsx";

export function Webhooks() {
  return <Page title="Webhooks">{null}</Page>;
}
