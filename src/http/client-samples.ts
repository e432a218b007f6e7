/** The client calls three of these by itself. Those of an open link need no client, and `npm run reconcile` is one. */
type WithoutSample =
  | "reconcile"
  | "describeResumableUploads"
  | "getResumableUpload"
  | "overrideResumableUpload"
  | "describeLink"
  | "openLink"
  | "openTranscript";

/** How the typed client does what an operation does, by its id. Tests hold them against the client. */
export const SAMPLES = {
  logIn: "const { key } = await stowage.logIn({ teamId, email, password });",
  createApiKey:
    'const { key } = await stowage.keys.create({ name: "Importer", scopes: ["files:upload", "files:read"] });',
  listApiKeys: "for await (const key of stowage.keys.list()) console.log(key.name);",
  getApiKey: "const key = await stowage.keys.get(id);",
  updateApiKey: 'const key = await stowage.keys.update(id, { scopes: ["files:read"] });',
  rotateApiKey: "const { key } = await stowage.keys.rotate(id, { overlapSeconds: 3600 });",
  deleteApiKey: "await stowage.keys.delete(id);",
  createSession: "const { key } = await stowage.sessions.create();",
  listSessions: "for await (const session of stowage.sessions.list()) console.log(session.userId, session.lastUsedAt);",
  revokeSession: "await stowage.sessions.delete(id);",
  logOut: "await stowage.logOut();",
  createTeam: 'const { team, apiKey } = await stowage.teams.create({ name: "Radio Lovelace" });',
  listTeams: 'for await (const team of stowage.teams.list({ status: "active" })) console.log(team.name);',
  getTeam: "const { usage } = await stowage.teams.get(id);",
  updateTeam: 'const team = await stowage.teams.update(id, { status: "suspended" });',
  deleteTeam: "await stowage.teams.delete(id);",
  getMe: "const { kind, scopes } = await stowage.me();",
  changePassword: "await stowage.changePassword({ currentPassword, newPassword });",
  createUser: 'const user = await stowage.users.create({ email, password, role: "member" });',
  listUsers: 'for await (const user of stowage.users.list({ name: "Ada" })) console.log(user.email);',
  getUser: "const user = await stowage.users.get(id);",
  updateUser: 'const user = await stowage.users.update(id, { lastName: "King" }, { version: 0 });',
  deleteUser: "await stowage.users.delete(id);",
  inviteUser: "const { url, token } = await stowage.users.invite(id);",
  describeInvitation: "const { teamName, email } = await stowage.describeInvitation({ token });",
  acceptInvitation: "const { key } = await stowage.acceptInvitation({ token, password });",
  forgotPassword: "await stowage.forgotPassword({ teamId, email });",
  exportUser: "const { user, sessions, keys, events } = await stowage.users.export(id);",
  createWebhook: 'const { secret } = await stowage.webhooks.create({ url, types: ["file.completed"] });',
  listWebhooks: "for await (const webhook of stowage.webhooks.list()) console.log(webhook.url);",
  getWebhook: "const webhook = await stowage.webhooks.get(id);",
  updateWebhook: 'const webhook = await stowage.webhooks.update(id, { status: "enabled" });',
  deleteWebhook: "await stowage.webhooks.delete(id);",
  rotateWebhookSecret: "const { secret } = await stowage.webhooks.rotateSecret(id);",
  testWebhook: "const { httpStatus } = await stowage.webhooks.test(id);",
  listDeliveries: "for await (const delivery of stowage.webhooks.deliveries(id)) console.log(delivery.status);",
  replayEvents: "const { deliveries } = await stowage.webhooks.replay(id, { after: eventId });",
  redeliver: "const delivery = await stowage.webhooks.redeliver(id);",
  createUploadToken:
    'const { token } = await stowage.files.createUploadToken({ maxFiles: 3, properties: { folder: "memos" } });',
  listFiles: 'for await (const file of stowage.files.list({ folder: "podcast/2026" })) console.log(file.name);',
  listTags: 'for await (const { tag } of stowage.files.tags({ prefix: "inter" })) console.log(tag);',
  listFolders: 'for await (const folder of stowage.files.folders({ under: "podcast" })) console.log(folder);',
  createFolder: 'const { folder } = await stowage.files.createFolder("podcast/2026");',
  moveFolder: 'const { isComplete } = await stowage.files.moveFolder("podcast/2026", "archive/2026");',
  deleteFolder: 'const { isComplete } = await stowage.files.deleteFolder("podcast/2025");',
  updateFile: 'const file = await stowage.files.update(id, { folder: "podcast/2026", tags: ["interview"] });',
  changeFiles: 'const results = await stowage.files.batch({ action: "move", ids, folder: "podcast/2026" });',
  uploadFile:
    "const { id } = await stowage.files.upload(file);\nconst { audio } = await stowage.files.waitUntilProcessed(id);",
  signFile: "const signedUrl = await stowage.files.createSignedUrl(id, { expiresIn: 600 });",
  deleteFile: "await stowage.files.delete(id);",
  getFileMetadata: "const { audio } = await stowage.files.get(id);",
  getFileStatus: "const { status, failure } = await stowage.files.status(id);",
  reprocessFile: "await stowage.files.reprocess(id);",
  getWaveform: "const channels = await stowage.files.waveform(id);",
  setWaveform: "await stowage.files.setWaveform(id, channels);",
  getTranscript: "const vtt = await stowage.files.getTranscript(id);",
  setTranscript: 'await stowage.files.setTranscript(id, vtt, { language: "en" });',
  deleteTranscript: "await stowage.files.deleteTranscript(id);",
  holdFile: 'await stowage.files.hold(id, "A claim about the interview");',
  releaseFile: "await stowage.files.release(id);",
  listTrash: "for await (const file of stowage.trash.list()) console.log(file.name, file.trashedAt);",
  restoreFile: "const file = await stowage.trash.restore(id);",
  eraseFile: "await stowage.trash.delete(id);",
  setRetention: "await stowage.trash.setRetention(365);",
  createLink: "const { url } = await stowage.links.create(fileId, { expiresAt });",
  listLinks: "for await (const link of stowage.links.list(fileId)) console.log(link.name, link.expiresAt);",
  revokeLink: "await stowage.links.delete(id);",
  listUnfinishedUploads:
    "for await (const upload of stowage.unfinishedUploads.list()) console.log(upload.offset, upload.size);",
  createResumableUpload:
    "const { id } = await stowage.files.upload(file, {\n  onProgress: (sent, total) => {},\n  onResumeUrl: (uploadUrl) => {},\n});",
  appendToResumableUpload: "const { id } = await stowage.files.upload(file, { resumeUrl: uploadUrl });",
  deleteResumableUpload: "await stowage.unfinishedUploads.cancel(uploadUrl);",
  listEvents: 'for await (const event of stowage.events.follow({ type: "file.completed" })) console.log(event);',
  getEvent: "const event = await stowage.events.get(id);",
  getUsage: "const { bytes, maxBytes } = await stowage.usage();",
};

/** The ids of all operations: app.ts compiles only if each has a sample, or is named above. */
export type OperationId = keyof typeof SAMPLES | WithoutSample;

/** As Redocly and others have it. */
export function codeSamplesOf(operationId: string): Record<string, unknown> {
  const source = (SAMPLES as Record<string, string | undefined>)[operationId];
  return source === undefined ? {} : { "x-codeSamples": [{ lang: "JavaScript", label: "Client", source }] };
}
