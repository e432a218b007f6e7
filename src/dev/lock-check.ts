/** A package in a lock file: see "package-lock.json" in the documentation of npm. */
interface LockedPackage {
  link?: boolean;
  resolved?: string;
  integrity?: string;
}

/** Packages come from here, or from where the settings of npm say. */
const REGISTRY = "https://registry.npmjs.org/";

/**
 * Returns a line for each package of the lock file whose bytes `npm ci` could not verify, or that is fixed to another registry.
 * Workspaces are part of the project.
 */
export function findUnverified({ packages }: { packages: Record<string, LockedPackage> }): string[] {
  return Object.entries(packages).flatMap(([path, { link, resolved, integrity }]) => {
    if (link || !path.includes("node_modules/")) return [];
    const problems: string[] = [];
    if (!integrity?.startsWith("sha512-")) problems.push(`${path} has no SHA-512 \`integrity\`.`);
    if (resolved !== undefined && !resolved.startsWith(REGISTRY)) problems.push(`${path} comes from another registry.`);
    return problems;
  });
}
