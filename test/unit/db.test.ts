import { env } from "cloudflare:workers";
import { and, eq } from "drizzle-orm";
import { describe, expect, test, vi } from "vitest";
import { prove, scopedRead } from "../../src/domain/proof.ts";
import { isUniqueViolation, openDb, runBatch, type Slot, statement } from "../../src/platform/db.ts";
import { users } from "../../src/platform/schema.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";
import { newTeam, type Team } from "../support/harness.ts";

const deps = { db: openDb(env.DB), system: realSystem };

async function newUser(team: Team): Promise<string> {
  const json = { email: `${crypto.randomUUID()}@example.com`, password: "correct horse battery" };
  return (await team.call("POST", "/auth/v1/users", { json })).body.data._id;
}

describe("A prepared query", () => {
  type ById = { id: string; teamId: string };
  const write = vi.fn((db: typeof deps.db, slot: Slot<ById>) =>
    db
      .select({ id: users.id, version: users.version })
      .from(users)
      .where(and(eq(users.id, slot("id")), eq(users.teamId, slot("teamId")))),
  );
  const byId = statement(write);

  test("A prepared query is written once, and each use has its own parameters.", async () => {
    const [one, another] = [await newTeam(), await newTeam()];
    const [first, second] = [await newUser(one), await newUser(another)];
    const bound = [
      byId({ id: first, teamId: one.teamId }),
      byId({ id: second, teamId: another.teamId }),
      byId({ id: first, teamId: another.teamId }),
    ] as const;
    expect(await runBatch(deps, bound)).toEqual([[{ id: first, version: 0 }], [{ id: second, version: 0 }], []]);
    expect(write).toHaveBeenCalledTimes(1);
  });

  test("A prepared query without one of its parameters is a bug, not a transient failure.", () => {
    expect(() => byId({ id: "x" } as ById)).toThrow(/teamId/);
  });

  test("A prepared query that breaks a rule of uniqueness tells so, and the others of its batch are undone.", async () => {
    const team = await newTeam();
    const id = await newUser(team);
    const rename = statement((db, slot: Slot<{ id: string }>) =>
      db
        .update(users)
        .set({ firstName: "Ada" })
        .where(eq(users.id, slot("id"))),
    );
    const again = statement((db, slot: Slot<{ id: string; teamId: string }>) =>
      db.insert(users).values({
        id: slot("id"),
        teamId: slot("teamId"),
        firstName: "",
        lastName: "",
        email: "",
        emailKey: "",
        password: "",
        createdAt: 1,
        updatedAt: 1,
      }),
    );
    const failure = await runBatch(deps, [rename({ id }), again({ id, teamId: team.teamId })]).catch((error) => error);
    expect(isUniqueViolation(failure)).toBe(true);
    expect((await team.call("GET", `/auth/v1/users/${id}`)).body.data.firstName).toBe("");
  });
});

describe("A scoped read", () => {
  const operatorOf = { ...deps, settings: {} } as never;
  const caller = (team: Team) => ({ kind: "bearer" as const, tokenHash: fingerprint(team.token) });

  test("A scoped read takes the team from the caller's credential, whatever its parameters say.", async () => {
    const [team, other] = [await newTeam(), await newTeam()];
    const id = await newUser(other);
    const byId = scopedRead((db, scope, slot: Slot<{ id: string; tokenHash?: string; now?: number }>) =>
      db
        .select({ id: users.id })
        .from(users)
        .where(and(eq(users.id, slot("id")), scope(users.teamId))),
    );
    const values = { id, tokenHash: fingerprint(other.token), now: 0 };
    expect((await prove(operatorOf, caller(other), "team", byId(values)))[1]).toEqual([{ id }]);
    expect((await prove(operatorOf, caller(team), "team", byId(values)))[1]).toEqual([]);
  });

  test("A scoped read that asks for no team can't be made.", async () => {
    const all = scopedRead((db) => db.select({ id: users.id }).from(users));
    const team = await newTeam();
    await expect(prove(operatorOf, caller(team), "team", all({}))).rejects.toThrow(TypeError);
  });
});
