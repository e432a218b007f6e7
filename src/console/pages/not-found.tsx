import { Empty, Page } from "../parts/page.tsx";
import { href } from "../router.ts";

export function NotFound() {
  return (
    <Page title="Not found">
      <Empty title="There is nothing at this address.">
        <p>
          <a href={href("/")}>Go to the start</a>
        </p>
      </Empty>
    </Page>
  );
}
