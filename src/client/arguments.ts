/** The classes whose methods reject surplus arguments. */
const checked = new WeakSet<object>();

/**
 * Makes the methods of an object, and of all others of its class, reject surplus arguments: options in the wrong place would have no effect. They can't have
 * default values, which their `length` does not count. The console leaves this out: the compiler checks its calls.
 */
export function rejectSurplusArguments(object: object): void {
  const methods: Record<string, (...args: unknown[]) => unknown> = Object.getPrototypeOf(object);
  if (checked.has(methods)) return;
  checked.add(methods);
  for (const name of Object.getOwnPropertyNames(methods)) {
    const method = methods[name];
    if (name === "constructor" || !method) continue;
    methods[name] = function (...args) {
      if (args.length <= method.length) return method.apply(this, args);
      throw new TypeError(`${name} takes ${method.length} arguments, not ${args.length}.`);
    };
  }
}
