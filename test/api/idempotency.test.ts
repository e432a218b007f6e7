import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Answer, Team } from "../support/client.ts";
import { encodeForm, expectSettled, expectSound, must, rowsOf, World } from "../support/world.ts";

/* `Idempotency-Key`: the same key in the same team within 24 hours stores one file. */

const DAY = 24 * 60 * 60 * 1000;

async function begin(): Promise<{ world: World; team: Team; send: typeof send }> {
  const world = new World();
  const team = await world.newTeam();
  async function send(text: string, key?: string, from: Team = team, cut = 0): Promise<Answer> {
    const { body, contentType } = await encodeForm("note.txt", text);
    const form = { body: body.slice(0, body.length - cut), contentType };
    return must(world.upload(from, form, key === undefined ? {} : { "Idempotency-Key": key }));
  }
  return { world, team, send };
}

describe("The same Idempotency-Key again", () => {
  test("A repetition with the same bytes gets the first answer, and one file is stored.", async () => {
    const { team, send } = await begin();
    const first = await send("text", "k");
    const second = await send("text", "k");
    expect([first.status, second.status]).toEqual([200, 200]);
    expect(second.headers.get("Location")).toBe(first.headers.get("Location"));
    expect(second.body).toEqual(first.body);
    expect(await expectSound(team.teamId)).toMatchObject([{ id: first.id }]);
  });

  test("A repetition gets the first answer in every state of the file.", async () => {
    const { world, team, send } = await begin();
    const first = await send("text", "k");
    await world.drain();
    expect(await rowsOf(team.teamId)).toMatchObject([{ status: "completed" }]);
    expect((await send("text", "k")).id).toBe(first.id);
  });

  test("A repetition with other bytes is a conflict, and stores nothing.", async () => {
    const { team, send } = await begin();
    await send("text", "k");
    const before = await rowsOf(team.teamId);
    const { status, code } = await send("another text", "k");
    expect([status, code]).toEqual([409, "idempotency_conflict"]);
    expect(await rowsOf(team.teamId)).toEqual(before);
    await expectSound(team.teamId);
  });

  test.each([2, 5])("%i requests at the same moment store one file.", async (count) => {
    const { world, team, send } = await begin();
    const answers = await Promise.all(Array.from({ length: count }, () => send("text", "k")));
    expect(answers.map(({ status }) => status)).toEqual(Array(count).fill(200));
    expect(new Set(answers.map(({ id }) => id)).size).toBe(1);
    await world.drain();
    expect(await expectSettled(team.teamId)).toHaveLength(1);
  });

  test("Two requests with different bytes at the same moment store one of the two.", async () => {
    const { team, send } = await begin();
    const answers = await Promise.all([send("text", "k"), send("another text", "k")]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect(await expectSound(team.teamId)).toHaveLength(1);
  });

  test("A repetition after a refusal stores the file.", async () => {
    const { team, send } = await begin();
    const { status, code } = await send("text", "k", team, 20);
    expect([status, code]).toEqual([400, "malformed_multipart"]);
    const second = await send("text", "k");
    expect(second.status).toBe(200);
    expect(await expectSound(team.teamId)).toMatchObject([{ id: second.id }]);
  });

  test("A repetition after the file was deleted stores it anew.", async () => {
    const { world, team, send } = await begin();
    const first = await send("text", "k");
    await world.ask("DELETE", `/docs/v1/uploads/${first.id}`, { token: team.token });
    const second = await send("another text", "k");
    expect(second.status).toBe(200);
    expect(second.id).not.toBe(first.id);
    expect(await expectSound(team.teamId)).toMatchObject([{ id: second.id }]);
  });

  test("A repetition takes over, after ten minutes, from a first upload whose Worker died.", async () => {
    const { world, team, send } = await begin();
    const { id } = await send("text", "k");
    await world.turnBack(id, "receiving");
    world.aheadMilliseconds += 9 * 60_000;
    expect((await send("text", "k")).code).toBe("idempotency_conflict");
    world.aheadMilliseconds += 2 * 60_000;
    const second = await send("text", "k");
    expect(second.status).toBe(200);
    expect(await rowsOf(team.teamId)).toMatchObject([{ id, status: "deleting" }, { id: second.id }]);
    await world.heal([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id: second.id, status: "completed" }]);
  });

  test("A key is remembered for 24 hours, and then stores a new file.", async () => {
    const { world, team, send } = await begin();
    const first = await send("text", "k");
    world.aheadMilliseconds += DAY - 60_000;
    expect((await send("text", "k")).id).toBe(first.id);
    world.aheadMilliseconds += 2 * 60_000;
    const later = await send("another text", "k");
    expect(later.status).toBe(200);
    expect(later.id).not.toBe(first.id);
    expect((await send("another text", "k")).id).toBe(later.id);
    expect(await expectSound(team.teamId)).toHaveLength(2);
  });

  test("A repetition while the first upload goes on is a conflict that says when to come again.", async () => {
    const { team, send } = await begin();
    const first = await send("text", "k");
    await env.DB.prepare("update files set status = 'receiving' where id = ?").bind(first.id).run();
    const { status, code, headers } = await send("text", "k");
    expect([status, code]).toEqual([409, "idempotency_conflict"]);
    expect(Number(headers.get("Retry-After"))).toBeGreaterThan(0);
    expect(await rowsOf(team.teamId)).toHaveLength(1);
  });
});

describe("Another Idempotency-Key", () => {
  test("A key of another team is another key.", async () => {
    const { world, team, send } = await begin();
    const other = await world.newTeam();
    const [mine, theirs] = [await send("text", "k"), await send("another text", "k", other)];
    expect([mine.status, theirs.status]).toEqual([200, 200]);
    expect(theirs.id).not.toBe(mine.id);
    expect(await expectSound(team.teamId)).toHaveLength(1);
    expect(await expectSound(other.teamId)).toHaveLength(1);
  });

  test("A different key, or none, stores another file even of the same bytes.", async () => {
    const { team, send } = await begin();
    for (const key of ["k", "K", undefined, undefined]) expect((await send("text", key)).status).toBe(200);
    expect(await expectSound(team.teamId)).toHaveLength(4);
  });

  test("A key has at most 255 characters.", async () => {
    const { team, send } = await begin();
    const longest = "k".repeat(255);
    const first = await send("text", longest);
    expect(first.status).toBe(200);
    expect((await send("text", longest)).id).toBe(first.id);
    for (const key of ["k".repeat(256), ""]) {
      const { status, code, body } = await send("text", key);
      expect([status, code, body.errors[0].path]).toEqual([400, "invalid_input", "Idempotency-Key"]);
    }
    expect(await expectSound(team.teamId)).toHaveLength(1);
  });
});

test("An upload that goes on is not taken over, however long it takes.", async () => {
  const world = new World();
  const team = await world.newTeam();
  const { body, contentType } = await encodeForm("slow.txt", "slow but steady");
  const lastOfFile = Buffer.from(body).indexOf("steady") + "steady".length;
  let sent = 0;
  const minutes: number[] = [];
  const slow = new ReadableStream<Uint8Array>({
    async pull(controller) {
      // Two minutes go by before each byte of the file.
      if (sent < lastOfFile) world.aheadMilliseconds += 120_000;
      controller.enqueue(body.subarray(sent, ++sent));
      if (sent === lastOfFile) {
        minutes.push(world.aheadMilliseconds / 60_000);
        const repeated = await must(world.upload(team, { body, contentType }, { "Idempotency-Key": "k" }));
        expect([repeated.status, repeated.code]).toEqual([409, "idempotency_conflict"]);
      }
      if (sent === body.length) controller.close();
    },
  });
  const first = await must(world.upload(team, { body: slow, contentType }, { "Idempotency-Key": "k" }));
  expect(first.status, first.text).toBe(200);
  expect(minutes[0]).toBeGreaterThan(10);
  expect(await expectSound(team.teamId)).toMatchObject([{ id: first.id, status: "pending" }]);
});
