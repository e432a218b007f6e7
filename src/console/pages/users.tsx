import { Page } from "../parts/page.tsx";

export function Users() {
  return <Page title="Users">{null}</Page>;
}
