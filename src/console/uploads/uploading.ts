import { followProcessing } from "./processing.ts";
import { startQueue } from "./queue.ts";

/* All of uploads that is not loaded with the first page. Once it is loaded, saved uploads resume. */

startQueue();
followProcessing();

export { addChosen, addDropped } from "./adding.ts";
export { UploadCard } from "./card.tsx";
export { discardUnfinished } from "./queue.ts";
export { sendingCount, unfinishedUploads } from "./upload.ts";
