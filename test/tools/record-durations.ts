import { record } from "../support/durations.ts";

/*
 * `npm run test:durations` writes the durations of the last runs on this machine to test/durations.json. Run `npm test` and
 * `npm run test:all` before it, on a machine that does nothing else, and commit the file.
 */

process.stdout.write(record());
