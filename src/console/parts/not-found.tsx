import { href } from "../framework/router.ts";
import { Empty, Page } from "./page.tsx";

export function NotFound() {
  return (
    <Page title="Page not found">
      <Empty title="This page doesn't exist">
        <p>
          <a href={href("/")}>Go to the start page</a>
        </p>
      </Empty>
    </Page>
  );
}
