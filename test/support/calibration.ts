import { Worker } from "node:worker_threads";

/** The job's duration on two free cores of the machine that the goals are set for. */
const REFERENCE_MILLISECONDS = 700;
const CORES = 2;

/** The most frequent work of tests: parse, print, sort, and call functions. Its size is fixed. */
const JOB = `
  let state = 1;
  const random = () => (state = (state * 48271) % 2147483647);
  for (let round = 0; round < 110; round++) {
    const rows = Array.from({ length: 4000 }, () => ({ id: random().toString(36), tags: [random() % 7, "tag"], size: random() }));
    rows.sort((a, b) => (a.id < b.id ? -1 : 1));
    const text = JSON.stringify(rows);
    if (JSON.parse(text).length !== 4000 || !/tag/.test(text)) throw new Error("The job is broken.");
  }
`;

const runJob = () =>
  new Promise<void>((resolve, reject) => {
    const worker = new Worker(JOB, { eval: true });
    worker.once("error", reject);
    worker.once("exit", () => resolve());
  });

/** Returns how many times slower than the goals assume this machine is now, because of its processor or other work. */
export async function measureSlowness(): Promise<number> {
  const start = performance.now();
  await Promise.all(Array.from({ length: CORES }, runJob));
  return (performance.now() - start) / REFERENCE_MILLISECONDS;
}
