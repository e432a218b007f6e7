import { Page } from "../parts/page.tsx";

export function Usage() {
  return <Page title="Usage">{null}</Page>;
}
