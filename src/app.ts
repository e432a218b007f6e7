import { Hono, type MiddlewareHandler } from "hono";
import { except } from "hono/combine";
import { methodNotAllowed } from "hono/method-not-allowed";
import { requestId } from "hono/request-id";
import * as invitations from "./accounts/invitations.routes.ts";
import * as keys from "./accounts/keys.routes.ts";
import * as me from "./accounts/me.routes.ts";
import * as sessions from "./accounts/sessions.routes.ts";
import * as teams from "./accounts/teams.routes.ts";
import * as users from "./accounts/users.routes.ts";
import { type Deps, readDeps } from "./deps.ts";
import { AppError } from "./errors.ts";
import * as events from "./events/events.routes.ts";
import * as files from "./files/files.routes.ts";
import * as tags from "./files/tags.routes.ts";
import * as transcripts from "./files/transcripts.routes.ts";
import * as waveforms from "./files/waveforms.routes.ts";
import * as batches from "./folders/batches.routes.ts";
import * as folders from "./folders/folders.routes.ts";
import type { AppEnv } from "./http/app-env.ts";
import type { OperationId } from "./http/client-samples.ts";
import { renderError, renderMethodNotAllowed } from "./http/failures.ts";
import { health } from "./http/health.ts";
import { apiHeaders, apiSecureHeaders, linkHeaders, preflight, requestLog, requireHttps } from "./http/middleware.ts";
import { mountDescriptions } from "./http/openapi.ts";
import { type Api, mount } from "./http/operation.ts";
import { mountPages } from "./http/pages.ts";
import { isLinkPath, LINK_PATHS } from "./http/paths.ts";
import * as links from "./links/links.routes.ts";
import * as signing from "./links/signing.routes.ts";
import { consoleLog } from "./platform/log.ts";
import { service } from "./service.ts";
import * as trash from "./trash/trash.routes.ts";
import * as reconciliation from "./upkeep/reconciliation.routes.ts";
import * as resumable from "./uploads/resumable.routes.ts";
import * as unfinished from "./uploads/unfinished.routes.ts";
import { upload } from "./uploads/upload.routes.ts";
import * as uploadTokens from "./uploads/upload-tokens.routes.ts";
import * as usage from "./uploads/usage.routes.ts";
import * as deliveries from "./webhooks/deliveries.routes.ts";
import * as webhooks from "./webhooks/webhooks.routes.ts";

/** The messages that the service sends to webhooks, for the document. */
export const { messages } = webhooks;

/** The whole API, by operation id. */
export const api = {
  logIn: ["POST /auth/v1/login", sessions.login],
  createSession: ["POST /auth/v1/sessions", sessions.create],
  listSessions: ["GET /auth/v1/sessions", sessions.list],
  revokeSession: ["DELETE /auth/v1/sessions/{id}", sessions.remove],
  logOut: ["POST /auth/v1/logout", sessions.logout],
  describeInvitation: ["POST /auth/v1/invitations/describe", invitations.describe],
  acceptInvitation: ["POST /auth/v1/invitations/accept", invitations.accept],
  forgotPassword: ["POST /auth/v1/password/forgot", invitations.forgot],

  createApiKey: ["POST /auth/v1/apikeys", keys.create],
  listApiKeys: ["GET /auth/v1/apikeys", keys.list],
  getApiKey: ["GET /auth/v1/apikeys/{id}", keys.get],
  updateApiKey: ["PATCH /auth/v1/apikeys/{id}", keys.update],
  rotateApiKey: ["POST /auth/v1/apikeys/{id}/rotate", keys.rotate],
  deleteApiKey: ["DELETE /auth/v1/apikeys/{id}", keys.remove],

  createTeam: ["POST /auth/v1/teams", teams.create],
  listTeams: ["GET /auth/v1/teams", teams.list],
  getTeam: ["GET /auth/v1/teams/{id}", teams.get],
  updateTeam: ["PATCH /auth/v1/teams/{id}", teams.update],
  deleteTeam: ["DELETE /auth/v1/teams/{id}", teams.remove],

  getMe: ["GET /auth/v1/me", me.get],
  changePassword: ["POST /auth/v1/me/password", me.changePassword],

  createUser: ["POST /auth/v1/users", users.create],
  listUsers: ["GET /auth/v1/users", users.list],
  getUser: ["GET /auth/v1/users/{id}", users.get],
  updateUser: ["PATCH /auth/v1/users/{id}", users.update],
  deleteUser: ["DELETE /auth/v1/users/{id}", users.remove],
  inviteUser: ["POST /auth/v1/users/{id}/invitations", invitations.invite],
  exportUser: ["GET /auth/v1/users/{id}/export", users.exportData],

  createWebhook: ["POST /auth/v1/webhooks", webhooks.create],
  listWebhooks: ["GET /auth/v1/webhooks", webhooks.list],
  getWebhook: ["GET /auth/v1/webhooks/{id}", webhooks.get],
  updateWebhook: ["PATCH /auth/v1/webhooks/{id}", webhooks.update],
  deleteWebhook: ["DELETE /auth/v1/webhooks/{id}", webhooks.remove],
  rotateWebhookSecret: ["POST /auth/v1/webhooks/{id}/secret", webhooks.rotate],
  testWebhook: ["POST /auth/v1/webhooks/{id}/test", webhooks.test],
  listDeliveries: ["GET /auth/v1/webhooks/{id}/deliveries", deliveries.list],
  replayEvents: ["POST /auth/v1/webhooks/{id}/replay", deliveries.replay],
  redeliver: ["POST /auth/v1/deliveries/{id}/redeliver", deliveries.redeliver],

  createUploadToken: ["POST /docs/v1/uploadtokens", uploadTokens.create],

  listFiles: ["GET /docs/v1/uploads", files.list],
  uploadFile: ["POST /docs/v1/uploads", upload],
  // Before the path with an id, which would match this one too.
  listUnfinishedUploads: ["GET /docs/v1/uploads/resumable", unfinished.list],
  changeFiles: ["POST /docs/v1/uploads/batch", batches.batch],
  signFile: ["GET /docs/v1/uploads/{id}", signing.sign],
  updateFile: ["PATCH /docs/v1/uploads/{id}", files.update],
  deleteFile: ["DELETE /docs/v1/uploads/{id}", files.remove],
  getFileMetadata: ["GET /docs/v1/uploads/{id}/metadata", files.metadata],
  getFileStatus: ["GET /docs/v1/uploads/{id}/status", files.status],
  reprocessFile: ["POST /docs/v1/uploads/{id}/reprocess", files.reprocess],
  getWaveform: ["GET /docs/v1/uploads/{id}/waveform", waveforms.get],
  setWaveform: ["PUT /docs/v1/uploads/{id}/waveform", waveforms.set],
  getTranscript: ["GET /docs/v1/uploads/{id}/transcript", transcripts.get],
  setTranscript: ["PUT /docs/v1/uploads/{id}/transcript", transcripts.set],
  deleteTranscript: ["DELETE /docs/v1/uploads/{id}/transcript", transcripts.remove],
  holdFile: ["PUT /docs/v1/uploads/{id}/hold", trash.hold],
  releaseFile: ["DELETE /docs/v1/uploads/{id}/hold", trash.release],

  listTrash: ["GET /docs/v1/trash", trash.list],
  restoreFile: ["POST /docs/v1/trash/{id}/restore", trash.restore],
  eraseFile: ["DELETE /docs/v1/trash/{id}", trash.erase],
  setRetention: ["PUT /docs/v1/retention", trash.setRetention],

  createLink: ["POST /docs/v1/uploads/{id}/links", links.create],
  listLinks: ["GET /docs/v1/uploads/{id}/links", links.list],
  revokeLink: ["DELETE /docs/v1/links/{id}", links.revoke],
  describeLink: ["GET /docs/v1/links/{id}.{secret}", links.describe],
  openLink: ["GET /docs/v1/links/{link}/{name}", links.open],
  openTranscript: ["GET /docs/v1/links/{link}/transcript/{name}", links.openTranscript],

  describeResumableUploads: ["OPTIONS /docs/v1/uploads/resumable", resumable.options],
  createResumableUpload: ["POST /docs/v1/uploads/resumable", resumable.create],
  getResumableUpload: ["HEAD /docs/v1/uploads/resumable/{upload}", resumable.head],
  appendToResumableUpload: ["PATCH /docs/v1/uploads/resumable/{upload}", resumable.append],
  deleteResumableUpload: ["DELETE /docs/v1/uploads/resumable/{upload}", resumable.remove],
  overrideResumableUpload: ["POST /docs/v1/uploads/resumable/{upload}", resumable.override],

  reconcile: ["POST /auth/v1/reconciliation", reconciliation.reconcile],

  listEvents: ["GET /auth/v1/events", events.list],
  getEvent: ["GET /auth/v1/events/{id}", events.get],

  listTags: ["GET /docs/v1/tags", tags.list],
  listFolders: ["GET /docs/v1/folders", folders.list],
  createFolder: ["POST /docs/v1/folders", folders.create],
  moveFolder: ["PATCH /docs/v1/folders", folders.move],
  deleteFolder: ["POST /docs/v1/folders/delete", folders.remove],
  getUsage: ["GET /docs/v1/usage", usage.get],
} satisfies Record<OperationId, Api[string]>;

const depsInWorker = (env: Env, ctx: Pick<ExecutionContext, "waitUntil">): Deps => readDeps(env, ctx, service);

export function createApp(depsOf = depsInWorker): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  // Never taken from the request: repeated ids would make log lines ambiguous.
  app.use(requestId({ headerName: "" }));
  app.use(async (c, next) => {
    c.set("log", consoleLog);
    await next();
  });
  app.use(requestLog);
  const provideDeps: MiddlewareHandler<AppEnv> = async (c, next) => {
    const deps = { ...depsOf(c.env, c.executionCtx), requestId: c.var.requestId };
    c.set("deps", deps);
    // With LINK_HOST, users' bytes never share an origin with the console.
    const { linkHost } = deps.settings;
    if (linkHost !== null) {
      const { host } = new URL(c.req.url);
      // Hono routes by this path, which is decoded. That of the URL may have an `s` of `links` as `%73`.
      if ((host === linkHost) !== isLinkPath(c.req.path)) throw new AppError("route_not_found");
    }
    await next();
  };
  mountPages(app, provideDeps, links.findPreview, links.findPicture);
  app.use(except(LINK_PATHS, apiSecureHeaders, apiHeaders));
  app.use(LINK_PATHS, linkHeaders);
  app.use(preflight);
  app.use(requireHttps);
  app.use(methodNotAllowed({ app, onMethodNotAllowed: renderMethodNotAllowed }));
  app.use(provideDeps);
  mount(app, api);
  mountDescriptions(app, api, messages);
  app.get("/health", health);
  app.notFound((c) => renderError(c, new AppError("route_not_found")));
  app.onError((error, c) => renderError(c, error));
  return app;
}
