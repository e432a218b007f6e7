/** Programs whose names are part of a `User-Agent`, those first that others name, too. */
const BROWSERS = {
  Edge: /Edg\w*\//,
  Opera: /OPR\//,
  "Samsung Internet": /SamsungBrowser\//,
  Firefox: /Firefox\/|FxiOS\//,
  Chrome: /Chrome\/|CriOS\//,
  Safari: /Safari\//,
};
const SYSTEMS = {
  iPhone: /iPhone/,
  iPad: /iPad/,
  Android: /Android/,
  Windows: /Windows/,
  macOS: /Mac OS X/,
  ChromeOS: /CrOS/,
  Linux: /Linux/,
};

/** A `User-Agent` in words, such as "Firefox on Windows". Another program has the name that it sends. */
export function describeDevice(userAgent: string | null): string {
  if (!userAgent) return "Unknown device";
  const named = (kinds: Record<string, RegExp>) =>
    Object.entries(kinds).find(([, pattern]) => pattern.test(userAgent))?.[0];
  const [browser, system] = [named(BROWSERS), named(SYSTEMS)];
  return browser ? [browser, system].filter(Boolean).join(" on ") : userAgent;
}
