import { expect, test } from "vitest";
import { hideRuntimeNoise } from "./noise.ts";

test("The log of a run leaves out the runtime's messages about bodies that a client interrupts, and nothing else", () => {
  const written: string[] = [];
  let calledBack = 0;
  const stream = {
    write: (text: string, done?: () => void) => {
      written.push(text);
      done?.();
      return true;
    },
  } as NodeJS.WriteStream;
  const undo = hideRuntimeNoise(stream);
  const callback = () => {
    calledBack += 1;
  };
  for (const text of ["one\n", "workerd/io.c++:1: failed: pump canceled\nstack: 1 2\n", "two\n"]) {
    expect(stream.write(text, callback)).toBe(true);
  }
  undo();
  stream.write("pump canceled\n");
  expect(written).toEqual(["one\n", "two\n", "pump canceled\n"]);
  expect(calledBack).toBe(3);
});
