import { fileURLToPath } from "node:url";
import { cloudflareTest, readD1Migrations } from "@cloudflare/vitest-pool-workers";
import { defineConfig } from "vitest/config";

const root = fileURLToPath(new URL("..", import.meta.url));

export default defineConfig(async () => ({
  root,
  test: {
    projects: [
      {
        root,
        plugins: [
          cloudflareTest({
            wrangler: { configPath: `${root}wrangler.toml` },
            miniflare: {
              bindings: {
                TEST_MIGRATIONS: await readD1Migrations(`${root}migrations`),
                MASTER_KEY: btoa("0123456789abcdef0123456789abcdef"),
                OPERATOR_TOKEN: "operator-token-of-the-test-suite-0123456789",
              },
            },
          }),
        ],
        test: {
          name: "workerd",
          include: ["test/unit/**/*.test.ts", "test/api/**/*.test.ts", "test/jobs/**/*.test.ts"],
          setupFiles: ["test/setup.ts"],
        },
      },
      {
        root,
        test: { name: "node", include: ["test/e2e/**/*.test.ts"], testTimeout: 60_000, hookTimeout: 120_000 },
      },
    ],
  },
}));
