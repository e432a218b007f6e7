/* Paths whose requests and responses differ from those of other operations. */

export const RESUMABLE = "/docs/v1/uploads/resumable";

/** Whether a path is one of these, such as `/docs/v1/links/{id}.{secret}`. A parameter is one segment. */
export function pathMatcher(templates: string[]): (path: string) => boolean {
  const patterns = templates.map((template) => template.replaceAll(".", "\\.").replaceAll(/\{\w+\}/g, "[^/]+"));
  const pattern = new RegExp(`^(${patterns.join("|")})$`);
  return (path) => templates.length > 0 && pattern.test(path);
}
