import { Page } from "../parts/page.tsx";
import { UploadButtons } from "../uploads/dropping.tsx";

export function Files() {
  return (
    <Page title="Files" actions={<UploadButtons />}>
      {null}
    </Page>
  );
}
