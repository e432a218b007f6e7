import { randomInt } from "node:crypto";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { type Fault, Line } from "../support/line.ts";
import { type Load, repeat, type Shot } from "./load.ts";
import { type Extent, MEBIBYTE, MEGABYTE, median } from "./measures.ts";
import { type As, append, askOffset, beginUpload, type Server } from "./server.ts";

const FILE = Buffer.alloc(20 * MEGABYTE, 7);
/** So few that each finds memory. */
const AT_ONCE = 4;
const MAX_TRIES = 5;
const ENDINGS: [name: string, fault: Fault | null, goalBytes: number][] = [
  ["a request that ended", null, 0],
  ["a connection that broke", "cut", 5 * MEBIBYTE],
  ["a connection that fell silent", "stall", 5 * MEBIBYTE],
];

/** How much of what came through must be sent again by a client that comes back at once. */
export async function measureCuts(server: Server, { isQuick, say }: Extent) {
  const as = { ...(await server.foundTeam("DB_IDLE")), database: "DB_IDLE" as const };
  const rows = [];
  for (const [name, fault, goalBytes] of ENDINGS) {
    say(`cuts: ${name}`);
    const bytes = await repeat(isQuick ? AT_ONCE : 60, AT_ONCE, () => sendInTwo(server, as, fault));
    rows.push({ name, times: bytes.length, medianBytes: median(bytes), mostBytes: Math.max(...bytes), goalBytes });
  }
  return rows;
}

/** Uploads a file by a request that comes to its end at a random point, and one that goes on. @returns what was sent twice */
async function sendInTwo({ url, load }: Server, as: As, fault: Fault | null): Promise<number> {
  const { location } = await load.send(beginUpload(FILE.length, as));
  const sentBytes = randomInt(1, FILE.length);
  const first = append(location, 0, fault ? FILE : FILE.subarray(0, sentBytes), as);
  const line = fault && (await sendOverLine(url, fault, first, sentBytes));
  if (!fault) await load.send(first);
  const offsetBytes = await goOn(load, as, location);
  await line?.close();
  return sentBytes - offsetBytes;
}

/**
 * Sends the rest, and asks anew where that fails, as clients do: the first request may still have been storing what came.
 * @returns where the rest began
 */
async function goOn(load: Load, as: As, address: string): Promise<number> {
  for (let tries = 1; ; tries++) {
    try {
      const { offsetBytes } = await load.send(askOffset(address, as));
      const end = await load.send(append(address, offsetBytes, FILE.subarray(offsetBytes), as));
      if (end.offsetBytes === FILE.length) return offsetBytes;
      throw new Error(`The upload stands at ${end.offsetBytes} bytes.`);
    } catch (error) {
      if (tries === MAX_TRIES) throw error;
    }
  }
}

/** Sends until the fault is there, after so many bytes of the body. What is left of the connection goes with the line. */
async function sendOverLine(url: string, fault: Fault, shot: Shot, sentBytes: number): Promise<Line> {
  const { method, path, headers, body: [bytes = Buffer.alloc(0)] = [] } = shot;
  const fields = Object.entries({ Host: "localhost", ...headers, "Content-Length": bytes.length });
  const head = [`${method} ${path} HTTP/1.1`, ...fields.map((field) => field.join(": ")), "", ""].join("\r\n");
  const line = await Line.open(url, () => ({ fault, afterBytes: head.length + sentBytes }));
  let answer = "";
  const socket = connect(Number(new URL(line.url).port), "localhost");
  socket.on("error", () => undefined).on("data", (text) => (answer += text));
  socket.write(head);
  socket.write(bytes);
  while (line.faults === 0 && answer === "") await sleep(1);
  if (answer !== "") throw new Error(`An answer came before the end of the line: ${answer}`);
  return line;
}
