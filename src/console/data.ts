import type { ApiKey, FileMetadata, Team, Webhook } from "../client/index.ts";
import { client } from "./framework/session.ts";
import { type Listing, type Loaded, useData, useList } from "./framework/store.ts";

/* Data that several pages show. Unless they are used, nothing is loaded: those of an unused key. */

/** The keys of a team, for the operator of another one. */
export const useKeys = (teamId?: string, isUsed = true): Listing<ApiKey> =>
  useList(
    isUsed ? ["keys", teamId] : ["unused"],
    isUsed ? (signal) => client.value.keys.list({ teamId }, { signal }) : null,
    {
      of: ["apikey"],
    },
  );

export const useWebhooks = (isUsed = true): Listing<Webhook> =>
  useList([isUsed ? "webhooks" : "unused"], isUsed ? (signal) => client.value.webhooks.list({ signal }) : null, {
    of: ["webhook"],
    // The results of deliveries, which decide its health, aren't events.
    isPolled: true,
  });

/** A file, or none without an id. */
export const useFile = (id: string | undefined): Loaded<FileMetadata | undefined> =>
  useData(["file", id], async (signal) => (id === undefined ? id : client.value.files.get(id, { signal })), {
    of: ["file"],
    on: ({ subject }) => subject.id === id,
  });

export const useTeam = (id: string): Loaded<Team> =>
  useData(["team", id], (signal) => client.value.teams.get(id, { signal }), { of: ["team"] });
