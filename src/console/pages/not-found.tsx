import { Empty, Page } from "../parts/page.tsx";
import { href } from "../router.ts";

export function NotFound() {
  return (
    <Page title="Page not found">
      <Empty title="This page doesn't exist">
        <p>
          <a href={href("/")}>Back to Files</a>
        </p>
      </Empty>
    </Page>
  );
}
