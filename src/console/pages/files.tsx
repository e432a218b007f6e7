import { Page } from "../parts/page.tsx";

export function Files() {
  return <Page title="Files">{null}</Page>;
}
