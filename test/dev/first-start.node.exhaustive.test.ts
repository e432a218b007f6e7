import { appendFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { cloneProject } from "../support/project.ts";
import { freePort, runDev, Server } from "../support/server.ts";

type Problem = [what: string, spoil: (folder: string) => void, ...messages: (string | RegExp)[]];

/** Values that must be replaced, and why the service rejects them. */
const EXAMPLES = [
  ["MASTER_KEY", "MASTER_KEY: each key must be 32 random bytes in base64."],
  ["OPERATOR_TOKEN", "OPERATOR_TOKEN: Must have at least 32 characters."],
] as const;
const example = readFileSync(join(import.meta.dirname, "../../.dev.vars.example"), "utf8");
const exampleOf = (name: string) => example.split("\n").find((line) => line.startsWith(`${name}=`));

/** Each of these problems is found only after seconds of a start. */
const problems: Problem[] = [
  ...EXAMPLES.map(
    ([name, reason]): Problem => [
      `with the reason if .dev.vars has the ${name} of .dev.vars.example`,
      (folder) => writeFileSync(join(folder, ".dev.vars"), `${exampleOf(name)}\n`),
      reason,
      /Retry shortly\. It responded 503\.\n$/,
    ],
  ),
  [
    "with the reason if a migration fails",
    (folder) => writeFileSync(join(folder, "migrations/9999_broken.sql"), "create tabel nonsense;"),
    /9999_broken\.sql.*Couldn't apply the migrations\.\n$/s,
  ],
  [
    "with the compiler's message if the build fails",
    (folder) => appendFileSync(join(folder, "src/index.ts"), 'import "./missing.ts";\n'),
    /Could not resolve "\.\/missing\.ts".*^The build failed\.\n$/ms,
  ],
];

test.each(problems)("the start fails %s", async (_, spoil, ...messages) => {
  const folder = cloneProject();
  spoil(folder);
  const { exited, output } = runDev(folder, { PORT: await freePort() });
  expect(await exited).toBe(1);
  for (const message of messages) expect(output()).toMatch(message);
  rmSync(folder, { recursive: true, maxRetries: 5 });
});

test("any number of databases is created, kept, and increased", { timeout: 300_000 }, async () => {
  const folder = cloneProject();
  const bind = (number: number) =>
    appendFileSync(
      join(folder, "wrangler.toml"),
      `\n[[d1_databases]]\nbinding = "DB_${number}"\ndatabase_name = "stowage-${number}"\nmigrations_dir = "migrations"\n`,
    );
  bind(1);
  const server = await Server.start([], {}, { folder });
  try {
    const newTeam = async (database: number) => {
      const json = { name: "team", database };
      const { body } = await server.call("POST", "/auth/v1/teams", { token: server.operatorToken, json });
      return { id: body.data._id, token: body.apiKey.key };
    };
    const numbers = async () => {
      const { body } = await server.call("GET", "/health", { token: server.operatorToken });
      return body.databases.map(({ number, status }: { number: number; status: string }) => `${number} ${status}`);
    };
    expect(await numbers()).toEqual(["0 ok", "1 ok"]);
    const teams = [await newTeam(0), await newTeam(1)];
    await server.stop();
    bind(2);
    await server.restart();
    expect(await numbers()).toEqual(["0 ok", "1 ok", "2 ok"]);
    teams.push(await newTeam(2));
    await server.stop();
    await server.restart();
    for (const [number, { id, token }] of teams.entries()) {
      const { body } = await server.call("GET", `/auth/v1/teams/${id}`, { token });
      expect(body.data).toMatchObject({ _id: id, database: number });
    }
  } finally {
    await server.remove();
  }
});
