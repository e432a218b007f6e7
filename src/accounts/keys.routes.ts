import * as z from "zod";
import { SCOPE_NAMES } from "../access/scopes.ts";
import { FILE_TYPES } from "../audio/media-type.ts";
import { fileType } from "../files/files.routes.ts";
import { listOperation, readOperation, writeOperation } from "../http/operation.ts";
import { creator, describeRecord, fieldOf } from "../http/record.ts";
import { atLeastOneField, id, iso, isoOrNull, name, pageQuery, pageRequest, timestamp } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { grouped } from "../numbers.ts";
import { DEFAULT_OVERLAP_SECONDS, MAX_OVERLAP_SECONDS, rotateKey } from "./key-rotation.ts";
import { type ApiKey, MAX_TEAM_KEYS, tooManyKeys } from "./key-rows.ts";
import { EXPIRED_KEY_DAYS } from "./key-upkeep.ts";
import {
  createKey,
  deleteKey,
  fetchKey,
  KEY_LIFETIME_DAYS,
  listKeys,
  MAX_KEY_LIFETIME_DAYS,
  updateKey,
} from "./keys.ts";
import { createTeam } from "./teams.ts";

export const keysTag = {
  name: "API keys",
  description: "Tokens of a team. A secret key has scopes; a public key uploads, and may ship in a web page.",
};

/** A bound without effect: no file has as many bytes. */
const MAX_FILE_BYTES_OF_KEY = 5_000_000_000_000;

/** The limits of a public key. An upload token has them, too. */
export const uploadLimits = lazy(() =>
  z
    .strictObject({
      maxFileBytes: z.int().min(1).max(MAX_FILE_BYTES_OF_KEY).optional(),
      fileTypes: z
        .array(fileType())
        .min(1)
        .max(FILE_TYPES.length)
        .refine((types) => new Set(types).size === types.length, "Must not contain duplicates.")
        .optional()
        .meta({ uniqueItems: true }),
    })
    .meta({ id: "KeyLimits" }),
);

/** Named, as `fileType` is. */
export const scope = lazy(() => z.enum(SCOPE_NAMES).meta({ id: "Scope" }));

const scopes = lazy(() =>
  z
    .array(scope())
    .min(1)
    .max(SCOPE_NAMES.length)
    .refine((all) => new Set(all).size === all.length, "Must not contain duplicates.")
    .meta({ uniqueItems: true }),
);

const field = fieldOf<ApiKey>();

export const keyRecord = describeRecord({
  id: "ApiKey",
  fields: {
    _id: field(id, "0193477be8a01f9c3ad5e7b2", (key) => key.id),
    id: field(id, "0193477be8a01f9c3ad5e7b2", (key) => key.id),
    key: field(
      () =>
        z.string().meta({
          description:
            "The token when the key is created or rotated. When it is fetched or deleted, too, if your scopes cover those of the key, but never for the operator. Otherwise a masked form (`stow_sk_ab12…wxyz`), as in lists. Empty if it can't be decrypted.",
        }),
      "stow_sk_4fTq0pWz7LxVn2Rk9bYcHs1dGmJ6aUeo003kQx9Z",
      ({ key }) => key,
    ),
    name: field(
      () => z.string(),
      "Web player",
      (key) => key.name,
    ),
    teamId: field(id, "0193477be89f4d2e6b8a0000", (key) => key.teamId),
    uuid: field(
      () => z.uuid(),
      "6c84fb90-12c4-4be1-9d5c-2a1f0b7de3a4",
      (key) => key.uuid,
    ),
    isPublic: field(
      () => z.boolean().meta({ description: "A public key can only upload files." }),
      false,
      (key) => key.isPublic,
    ),
    scopes: field(
      () => z.array(scope()),
      ["files:upload", "files:read", "files:download"],
      (key) => key.scopes,
    ),
    limits: field(
      () => uploadLimits().nullable().meta({ description: "The limits of a public key. Null if it has none." }),
      null,
      (key) => key.limits,
    ),
    createdBy: field(
      () => creator().nullable().meta({ description: "The key or session that created it. Null if the operator did." }),
      { keyId: "0193477be8a01f9c3ad5e700", userId: null },
      (key) => key.createdBy,
    ),
    lastUsedAt: field(
      () => timestamp().nullable().meta({ description: "Accurate to an hour." }),
      null,
      (key) => isoOrNull(key.lastUsedAt),
    ),
    createdAt: field(timestamp, "2026-11-20T09:30:00.000Z", (key) => iso(key.createdAt)),
    expiresAt: field(timestamp, "2027-11-20T09:30:00.000Z", (key) => iso(key.expiresAt)),
  },
});
const { schema, example, render } = keyRecord;

const create = writeOperation(
  { scope: "keys:write", also: "operator" },
  {
    route: "POST /auth/v1/apikeys",
    tag: keysTag,
    summary: "Create an API key",
    sample: 'const { key } = await stowage.keys.create({ name: "Importer", scopes: ["files:upload", "files:read"] });',
    description:
      `A secret key creates keys for its own team, which can have ${grouped(MAX_TEAM_KEYS)}. ` +
      `Expired keys do not count: they are kept for ${EXPIRED_KEY_DAYS} days, or until the team needs their place. ` +
      "If the operator omits `teamId`, the key gets a new team, which has its name. An unknown `teamId` gets 404.",
    body: () =>
      z.strictObject({
        name: name(1),
        isPublic: z.boolean().default(false),
        scopes: scopes().optional().meta({
          description: "Default: your own. You can only grant scopes that you have. A public key has `files:upload`.",
        }),
        limits: uploadLimits().optional().meta({
          description:
            "For a public key: the size and types of the files that it may upload. If processing finds a type that is not allowed, the file ends `failed` with `type_not_allowed`, and only the team can download or delete it.",
        }),
        expiresAt: timestamp()
          .optional()
          .meta({ description: `Default ${KEY_LIFETIME_DAYS} days from now, at most ${MAX_KEY_LIFETIME_DAYS}.` }),
        teamId: id().optional().meta({ description: "Only the operator can send it." }),
      }),
    bodyExample: { name: "Web player", isPublic: false, scopes: ["files:upload", "files:read", "files:download"] },
    success: { description: "The new key.", message: "API key created.", schema, example },
    errors: [tooManyKeys, "not_found"],
  },
  async ({ deps, actor, body }) => {
    const expiresAt = body.expiresAt === undefined ? undefined : Date.parse(body.expiresAt);
    const newKey = { ...body, expiresAt };
    const isForNewTeam = actor.kind === "operator" && body.teamId === undefined;
    const key = isForNewTeam
      ? (await createTeam(deps, actor, { name: body.name }, newKey)).key
      : await createKey(deps, actor, newKey);
    return render(key);
  },
);

const list = listOperation(
  { scope: "keys:read", also: "operator" },
  {
    route: "GET /auth/v1/apikeys",
    tag: keysTag,
    summary: "List API keys",
    sample: "for await (const key of stowage.keys.list()) console.log(key.name);",
    description: "Newest first, with masked tokens. Sessions are not listed.",
    query: () =>
      pageQuery("keys").extend({
        teamId: id().optional().meta({ description: "Only the operator can send it, and must." }),
      }),
    success: { description: "A page of keys.", noun: "API keys", schema, example },
    errors: ["not_found"],
  },
  ({ deps, credential, query }) => listKeys(deps, credential, { ...pageRequest(query), teamId: query.teamId }),
  render,
);

const get = readOperation(
  { scope: "keys:read", also: "operator" },
  {
    route: "GET /auth/v1/apikeys/{id}",
    tag: keysTag,
    summary: "Get API key details",
    sample: "const key = await stowage.keys.get(id);",
    description:
      "Shows the whole token if your scopes cover those of the key. This is recorded as the event `apikey.revealed`, once an hour for each caller.",
    success: { description: "The key.", message: "API key found.", schema, example },
  },
  async ({ c, deps, credential, id }) => {
    // The response to HEAD has no body.
    const isShown = c.req.method !== "HEAD";
    return render(await fetchKey(deps, credential, id, { isShown }));
  },
);

const update = writeOperation(
  { scope: "keys:write", also: "operator" },
  {
    route: "PATCH /auth/v1/apikeys/{id}",
    tag: keysTag,
    summary: "Update an API key",
    sample: 'const key = await stowage.keys.update(id, { scopes: ["files:read"] });',
    description:
      "Renames the key, removes scopes, or shortens its lifetime. Applies to the sessions created with it, too. You need every scope of the key.",
    body: () =>
      atLeastOneField(
        z.strictObject({
          name: name(1),
          scopes: scopes().meta({ description: "The scopes that the key keeps." }),
          expiresAt: timestamp().meta({ description: "In the future, and not later than the key expires now." }),
        }),
      ),
    bodyExample: { name: "Old web player" },
    success: { description: "The updated key.", message: "API key updated.", schema, example },
  },
  async ({ deps, actor, id, body }) => {
    const expiresAt = body.expiresAt === undefined ? undefined : Date.parse(body.expiresAt);
    const key = await updateKey(deps, actor, id, { ...body, expiresAt });
    return render(key);
  },
);

const remove = writeOperation(
  { scope: "keys:write", also: "operator" },
  {
    route: "DELETE /auth/v1/apikeys/{id}",
    tag: keysTag,
    summary: "Delete an API key",
    sample: "await stowage.keys.delete(id);",
    description:
      "Returns the key a last time. It and the sessions created with it stop working immediately, and their unfinished uploads are canceled. A key can delete itself. You need every scope of the key.",
    success: { description: "The deleted key.", message: "API key deleted.", schema, example },
  },
  async ({ deps, actor, id }) => render(await deleteKey(deps, actor, id)),
);

const NEW_ID = "0193477d5a0c4e7f9b2d6c18";

const rotate = writeOperation(
  { scope: "keys:write", also: "operator" },
  {
    route: "POST /auth/v1/apikeys/{id}/rotate",
    tag: keysTag,
    summary: "Rotate an API key",
    sample: "const { key } = await stowage.keys.rotate(id, { overlapSeconds: 3600 });",
    description:
      "Creates a key with the same name, scopes, limits, user and lifetime, counted from now. " +
      "The old key and its sessions expire when the overlap ends, or earlier if they would have expired before. " +
      "The caller's scopes must cover those of the key.\n\n" +
      "If you get no response, repeat the request: " +
      "until the new key is used, for an hour, the caller who created it gets the same key again. " +
      "An overlap is at least a minute for a key that rotates itself, or its session.",
    body: () =>
      z.strictObject({
        overlapSeconds: z
          .int()
          .min(0)
          .max(MAX_OVERLAP_SECONDS)
          .default(DEFAULT_OVERLAP_SECONDS)
          .meta({ description: "How long the old key still works." }),
      }),
    isBodyOptional: true,
    bodyExample: { overlapSeconds: 3600 },
    success: {
      description: "The new key.",
      message: "API key rotated.",
      schema,
      example: { ...example, _id: NEW_ID, id: NEW_ID },
    },
    errors: ["conflict", tooManyKeys],
  },
  async ({ deps, actor, id, body }) => render(await rotateKey(deps, actor, id, body.overlapSeconds)),
);

export const operations = {
  createApiKey: create,
  listApiKeys: list,
  getApiKey: get,
  updateApiKey: update,
  rotateApiKey: rotate,
  deleteApiKey: remove,
};
