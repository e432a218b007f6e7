declare namespace Cloudflare {
  interface Env {
    DB_1: D1Database;
    DB_2: D1Database;
    STOWAGE_SEED: string;
    TEST_MIGRATIONS: import("cloudflare:test").D1Migration[];
    S3_ENDPOINT: string;
    S3_ACCESS_KEY_ID: string;
    S3_SECRET_ACCESS_KEY: string;
  }
}
