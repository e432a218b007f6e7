import * as z from "zod";
import { countFiles, FILES_PER_PLACE } from "../access/authorization.ts";
import { filesTag } from "../files/files.routes.ts";
import { folder } from "../files/properties.routes.ts";
import { listOperation, writeOperation } from "../http/operation.ts";
import { cursorOf, MAX_LIMIT, pageLimit } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { grouped } from "../numbers.ts";
import { countFilesWithin, deleteFolder, folderBusy, MAX_COUNTED_HOLDS, moveFolder } from "./folder-changes.ts";
import { createFolder, listFolders, MAX_FOLDERS, tooManyFolders } from "./folders.ts";

const list = listOperation(
  "files:read",
  {
    route: "GET /docs/v1/folders",
    tag: filesTag,
    summary: "List folders",
    sample: 'for await (const folder of stowage.files.folders({ under: "podcast" })) console.log(folder);',
    description:
      "The folders directly below a folder, or with `deep` all below it, by name. A folder exists as long as a file is in it or below it, and if it was created, until it is deleted.",
    query: () =>
      z.object({
        limit: pageLimit().meta({ description: `Page size. Default and maximum ${MAX_LIMIT}.` }),
        cursor: cursorOf("folders"),
        under: folder().optional().meta({ description: "Default: the top-level folders." }),
        deep: z.enum(["true", "false"]).optional().meta({
          description: "`true` also lists the folders in these folders, at all levels. Default `false`.",
        }),
      }),
    success: {
      description: "A page of folders, as full paths.",
      noun: "Folders",
      schema: () => z.string(),
      example: "podcast/2026",
    },
  },
  ({ deps, credential, query: { under = "", deep, limit = MAX_LIMIT, cursor } }) =>
    listFolders(deps, credential, { under, isDeep: deep === "true" }, { limit, cursor }),
  (folder) => folder,
);

const namedFolder = lazy(() =>
  folder()
    .refine((path) => path !== "", "Must not be empty.")
    .meta({ minLength: 1 }),
);

const create = writeOperation(
  "files:write",
  {
    route: "POST /docs/v1/folders",
    tag: filesTag,
    summary: "Create a folder",
    sample: 'const { folder } = await stowage.files.createFolder("podcast/2026");',
    description: `Creates an empty folder; one that exists stays as it is. A team can have ${grouped(MAX_FOLDERS)} created folders. A file needs none: uploading or moving it into a folder is enough.`,
    body: () => z.strictObject({ folder: namedFolder() }),
    bodyExample: { folder: "podcast/2027" },
    success: {
      description: "The folder exists.",
      message: "Folder created.",
      schema: () => z.strictObject({ folder: z.string() }),
      example: { folder: "podcast/2027" },
    },
    errors: [tooManyFolders],
  },
  async ({ deps, actor, body }) => {
    await createFolder(deps, actor, body.folder);
    return { folder: body.folder };
  },
);

const FOLDER_CHANGE =
  "The first files are changed at once. If there are more, `isComplete` is false, and the rest follows within minutes; until then other folders of the team can't be moved or deleted (409). It goes on if you log out or rotate your key, and ends as it is if you can't request it any more: the user is deleted or loses the scope, the key is deleted, expires or is narrowed, or the team is suspended. " +
  "A file that comes into the folder after the request stays in it. Each file has its event, as in a batch. " +
  `A contributor changes only the own files, independently of the others. It takes a place of the heavy limit for each ${FILES_PER_PLACE} of the first files.`;
const folderChange = lazy(() =>
  z.strictObject({
    folder: z.string().meta({ description: "Where the folder is, or was." }),
    isComplete: z.boolean(),
  }),
);
const folderDeletion = lazy(() =>
  folderChange().extend({
    held: z
      .int()
      .nonnegative()
      .max(MAX_COUNTED_HOLDS)
      .meta({
        description: `The held files that stay in the folder. At most ${grouped(MAX_COUNTED_HOLDS)} are counted.`,
      }),
  }),
);
/** @returns such as "Folder deleted. 2 held files stay in it." */
const describeDeletion = ({ isComplete, held }: z.infer<ReturnType<typeof folderDeletion>>) => {
  const text = isComplete ? "Folder deleted." : "The folder is being deleted.";
  if (held === 0) return text;
  return `${text} ${held === 1 ? "1 held file stays" : `${held} held files stay`} in it.`;
};

const move = writeOperation(
  "files:write",
  {
    route: "PATCH /docs/v1/folders",
    tag: filesTag,
    summary: "Rename or move a folder",
    sample: 'const { isComplete } = await stowage.files.moveFolder("podcast/2026", "archive/2026");',
    description: `Moves the files and folders in it along. If \`to\` exists, the two are merged. A folder that doesn't exist has nothing to move. ${FOLDER_CHANGE}`,
    body: () => z.strictObject({ folder: namedFolder(), to: namedFolder().meta({ description: "Its new path." }) }),
    bodyExample: { folder: "podcast/2026", to: "archive/podcast" },
    success: {
      description: "The folder is moved, or being moved.",
      message: ({ isComplete }) => (isComplete ? "Folder moved." : "The folder is being moved."),
      schema: folderChange,
      example: { folder: "archive/podcast", isComplete: true },
    },
    isHeavy: true,
    errors: [folderBusy],
  },
  async ({ deps, actor, credential, body }) => {
    await countFiles(deps, credential, await countFilesWithin(deps, actor, body.folder));
    return moveFolder(deps, actor, body.folder, body.to);
  },
);

const remove = writeOperation(
  "files:delete",
  {
    route: "POST /docs/v1/folders/delete",
    tag: filesTag,
    summary: "Delete a folder",
    sample: 'const { isComplete } = await stowage.files.deleteFolder("podcast/2025");',
    description: `Deletes the files and folders in it. Held files stay, with their folders. Also needs \`files:erase\` if there is no trash. ${FOLDER_CHANGE}`,
    body: () => z.strictObject({ folder: namedFolder() }),
    bodyExample: { folder: "podcast/2025" },
    success: {
      description: "The folder is deleted, or being deleted.",
      message: describeDeletion,
      schema: folderDeletion,
      example: { folder: "podcast/2025", isComplete: true, held: 0 },
    },
    isHeavy: true,
    errors: [folderBusy],
  },
  async ({ deps, actor, credential, body }) => {
    await countFiles(deps, credential, await countFilesWithin(deps, actor, body.folder));
    return deleteFolder(deps, actor, body.folder);
  },
);

export const operations = {
  listFolders: list,
  createFolder: create,
  moveFolder: move,
  deleteFolder: remove,
};
