/** What tus-js-client brings libraries along for, and browsers have: build.js puts this in their place. */
export default globalThis.URL;

export const Base64 = {
  encode: (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text))),
};
