import { inject } from "vitest";
import { waitUntilReady } from "./starting.ts";

// Before a file that uses the shared servers.
await Promise.all(inject("serverMarks").map(waitUntilReady));
