import { env } from "cloudflare:workers";
import { and, eq } from "drizzle-orm";
import { describe, expect, test, vi } from "vitest";
import { authorizeRead, type Credential, teamRead } from "../../src/domain/accounts/authorization.ts";
import { createDb, type Param, preparedQuery, read, rowOf, write } from "../../src/platform/db.ts";
import { isUniqueViolation } from "../../src/platform/retry.ts";
import { users } from "../../src/platform/schema.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";
import { newTeam, type Team } from "../support/harness.ts";

const deps = { db: createDb(env.DB), system: realSystem };

async function newUser(team: Team): Promise<string> {
  const json = { email: `${crypto.randomUUID()}@example.com`, password: "correct horse battery" };
  return (await team.call("POST", "/auth/v1/users", { json })).body.data._id;
}

describe("a prepared query", () => {
  type ById = { id: string; teamId: string };
  const build = vi.fn((db: typeof deps.db, param: Param<ById>) =>
    db
      .select({ id: users.id, version: users.version })
      .from(users)
      .where(and(eq(users.id, param("id")), eq(users.teamId, param("teamId")))),
  );
  const byId = preparedQuery(build);

  test("A prepared query is built once, and each use has its own values.", async () => {
    const [one, another] = [await newTeam(), await newTeam()];
    const [first, second] = [await newUser(one), await newUser(another)];
    const bound = [
      byId({ id: first, teamId: one.teamId }),
      byId({ id: second, teamId: another.teamId }),
      byId({ id: first, teamId: another.teamId }),
    ] as const;
    expect(await read(deps, bound)).toEqual([[{ id: first, version: 0 }], [{ id: second, version: 0 }], []]);
    expect(build).toHaveBeenCalledTimes(1);
  });

  test("A prepared query of another database is built for that one.", async () => {
    const team = await newTeam();
    const id = await newUser(team);
    const other = { ...deps, db: createDb(env.DB) };
    const before = build.mock.calls.length;
    for (const database of [other, other]) {
      expect(await read(database, [byId({ id, teamId: team.teamId })])).toEqual([[{ id, version: 0 }]]);
    }
    expect(build).toHaveBeenCalledTimes(before + 1);
  });

  test("A prepared query without one of its values is a bug and not a transient error.", async () => {
    await expect(async () => read(deps, [byId({ id: "x" } as ById)])).rejects.toThrow(/teamId/);
  });

  test("A write that a unique index refuses is told from others, and the rest of its batch is undone.", async () => {
    const team = await newTeam();
    const id = await newUser(team);
    const rename = preparedQuery((db, param: Param<{ id: string }>) =>
      db
        .update(users)
        .set({ firstName: "Ada" })
        .where(eq(users.id, param("id"))),
    );
    const again = preparedQuery((db, param: Param<typeof users.$inferSelect>) =>
      db.insert(users).values(rowOf(users, param)),
    );
    const names = { firstName: "", lastName: "", email: "", emailKey: "", password: "" };
    const row = { id, teamId: team.teamId, ...names, createdAt: 1, updatedAt: 1, version: 0 };
    const failure = await write(deps, [rename({ id }), again(row)], { isIdempotent: true }).catch((error) => error);
    expect(isUniqueViolation(failure)).toBe(true);
    expect((await team.call("GET", `/auth/v1/users/${id}`)).body.data.firstName).toBe("");
  });
});

describe("a team read", () => {
  const credentialOf = (team: Team): Credential => ({
    right: "team",
    tokenHash: fingerprint(team.token),
    onAuthenticated: () => undefined,
  });
  const ids = (team: Team, wanted: Parameters<typeof authorizeRead<{ id: string }[]>>[2]) =>
    authorizeRead(deps as never, credentialOf(team), wanted);

  test("A team read takes the team from the caller's key, whatever its values say.", async () => {
    const [team, other] = [await newTeam(), await newTeam()];
    const id = await newUser(other);
    const byId = teamRead(users.teamId, (db, param: Param<{ id: string; tokenHash?: string; now?: number }>) => ({
      query: db.select({ id: users.id }).from(users).$dynamic(),
      where: eq(users.id, param("id")),
    }));
    const values = { id, tokenHash: fingerprint(other.token), now: 0 };
    expect(await ids(other, byId(values))).toEqual([{ id }]);
    expect(await ids(team, byId(values))).toEqual([]);
  });

  test("A team read without a condition of its own finds the caller's team and no other.", async () => {
    const all = teamRead(users.teamId, (db) => ({ query: db.select({ id: users.id }).from(users).$dynamic() }));
    const [team, other] = [await newTeam(), await newTeam()];
    const id = await newUser(team);
    await newUser(other);
    expect(await ids(team, all({}))).toEqual([{ id }]);
  });
});
