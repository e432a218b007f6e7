import { env } from "cloudflare:workers";
import { and, asc, eq, ne, type SQL, sql } from "drizzle-orm";
import { beforeEach, describe, expect, test } from "vitest";
import { USER_EVENTS } from "../../src/accounts/account-event-types.ts";
import { users } from "../../src/accounts/users.schema.ts";
import { events } from "../../src/events/events.schema.ts";
import { recorded, recordedEach, SYSTEM, writeWithEvent } from "../../src/events/events.ts";
import { type Batch, createDb, read } from "../../src/platform/db.ts";
import { readDeps } from "../support/deps.ts";
import { newTeam } from "../support/harness.ts";

const deps = { ...readDeps(env, { waitUntil: () => {} }), db: createDb(env.DB, 0) };

/** The users of a new team, by their first names. Its log has none of their events. */
let teamId: string;
const NAMES = ["Ada", "Grace"];
beforeEach(async () => {
  ({ teamId } = await newTeam(undefined, 0));
  for (const firstName of NAMES) {
    const texts = { firstName, lastName: "", email: firstName, emailKey: firstName, password: "" };
    const row = { id: `${teamId}${firstName}`, teamId, ...texts, role: "viewer" as const };
    await deps.db.insert(users).values({ ...row, createdAt: 1, updatedAt: 1, version: 7 });
  }
});

const isUser = (firstName: string) => and(eq(users.teamId, teamId), eq(users.firstName, firstName));
const rename = (from: string, to: string) =>
  deps.db
    .update(users)
    .set({ firstName: to, version: sql`${users.version} + 1` })
    .where(isUser(from));
const send = (batch: { [name: string]: Batch }) => writeWithEvent(deps, batch, { isIdempotent: false, caller: null });
const logged = async () =>
  (
    await read(
      deps,
      deps.db
        .select({ data: sql<string>`${events.data}`, version: events.subjectVersion })
        .from(events)
        .where(and(eq(events.teamId, teamId), sql`${events.type} like 'user.%'`))
        .orderBy(asc(events.seq)),
    )
  ).map(({ data, version }) => [JSON.parse(data).name, version]);

describe("A change and its event", () => {
  const subject = () => ({ teamId, id: "u", version: sql`${users.version}` });
  const change = (where: SQL | undefined) => ({
    type: USER_EVENTS.updated,
    initiator: SYSTEM,
    subject: subject(),
    data: sql`json_object('name', ${users.firstName})`,
    from: sql`${users}`,
    where,
  });
  const removal = (where: SQL | undefined) => ({
    ...change(where),
    type: USER_EVENTS.deleted,
    reads: "before" as const,
  });
  const each = (where: SQL | undefined) => ({
    ...change(where),
    subject: { teamId, id: sql`${users.id}`, version: sql`${users.version}` },
  });

  test("has the row as the change has left it", async () => {
    await send({ update: recorded(deps, change(isUser("Ada King")), rename("Ada", "Ada King")) });
    expect(await logged()).toEqual([["Ada King", 8]]);
  });

  test("has no event if the change changes no row, whatever the queries around it change", async () => {
    await send({
      earlier: rename("Grace", "Grace Hopper"),
      update: recorded(deps, change(isUser("Ada")), rename("nobody", "Ada")),
      later: rename("Grace Hopper", "Grace"),
    });
    expect(await logged()).toEqual([]);
  });

  test("has an event after the last of several statements, if that changes a row", async () => {
    const renaming = (last: string) => ({ first: rename("Ada", "A"), last: rename(last, "B") });
    await send({ updates: recorded(deps, change(isUser("Grace")), renaming("nobody")) });
    await send({ undo: rename("A", "Ada") });
    await send({ updates: recorded(deps, change(isUser("Grace")), renaming("A")) });
    expect(await logged()).toEqual([["Grace", 7]]);
  });

  test("has the row that it removes, if it reads before", async () => {
    const remove = deps.db.delete(users).where(isUser("Ada"));
    await send({ removal: recorded(deps, removal(isUser("Ada")), remove) });
    await send({ removal: recorded(deps, removal(isUser("Ada")), remove) });
    expect(await logged()).toEqual([["Ada", 7]]);
  });

  test("is one of several, of which each has its own condition", async () => {
    const inner = recorded(deps, removal(isUser("Grace")), deps.db.delete(users).where(eq(users.teamId, teamId)));
    await send({ both: recorded(deps, removal(isUser("Ada")), inner) });
    expect(await logged()).toEqual([
      ["Ada", 7],
      ["Grace", 7],
    ]);
  });

  test("has an event for each row, before the change or after it", async () => {
    const isOfTeam = eq(users.teamId, teamId);
    const update = deps.db
      .update(users)
      .set({ version: sql`${users.version} + 1` })
      .where(and(isOfTeam, ne(users.firstName, "Ada")));
    await send({
      update: recordedEach(deps, { ...each(and(isOfTeam, eq(users.version, 8))), reads: "after" }, update),
    });
    const remove = deps.db.delete(users).where(isOfTeam);
    await send({ removal: recordedEach(deps, { ...each(isOfTeam), reads: "before" }, remove) });
    const [first, ...rest] = await logged();
    expect(first).toEqual(["Grace", 8]);
    expect(rest.sort()).toEqual([
      ["Ada", 7],
      ["Grace", 8],
    ]);
  });
});
