import { script } from "../framework/script.tsx";

/** The uploads of this tab. They are loaded once the first page is there, or when files are chosen before. */
export const uploading = script(() => import("./uploading.ts"));

/** The card of uploads, which appears with the first one. */
export function UploadCard() {
  const Card = uploading.loaded.value?.UploadCard;
  return Card ? <Card /> : null;
}
