/* Paths whose requests and responses have different headers from those of other operations. */

export const RESUMABLE = "/docs/v1/uploads/resumable";

export const LINKS = "/docs/v1/links";
/** The paths that serve bytes. */
export const LINK_PATHS = `${LINKS}/*/*`;
const LINK_PATH = new RegExp(`^(${LINKS}/[^/]+(/transcript/|/|\\.)[^/]+|/(share|embed)/[^/]+(/[^/]+)?)$`);
/** Whether a path contains the secret of a link. */
export const isLinkPath = (path: string): boolean => LINK_PATH.test(path);
