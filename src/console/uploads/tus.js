import HttpStack from "../../../node_modules/tus-js-client/lib.esm/browser/httpStack.js";
import Base from "../../../node_modules/tus-js-client/lib.esm/upload.js";

const sourceOf = (file) => ({
  size: file.size,
  slice: async (start, end) => ({ value: file.slice(start, end), done: end >= file.size }),
  close() {},
});

/** tus-js-client without what the console does itself, or never sends: kept addresses, streams, React Native's files. */
export class Upload extends Base {
  constructor(file, options) {
    super(file, {
      ...Base.defaultOptions,
      httpStack: new HttpStack(),
      fileReader: { openFile: async () => sourceOf(file) },
      fingerprint: async () => null,
      ...options,
    });
  }
}
