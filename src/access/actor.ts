/** An authenticated caller: a token of a team, or the operator, who manages teams and the keys of any team. */
export type Actor = Operator | TeamActor;

export interface Operator {
  kind: "operator";
  /** All scopes. */
  scopes: number;
}

/** The requirement of an operation on its caller. */
export interface Right {
  /** The mask of the needed scopes. */
  scopes: number;
  /** How long a public key or upload token may still run the operation after its expiry. */
  graceMilliseconds: number;
}

export interface TeamActor {
  kind: "secret" | "public" | "session" | "upload";
  teamId: string;
  /** The API key or session. For an upload token, the one that issued it. */
  keyId: string;
  /** The user whose session it is, or whose session created the key. */
  userId: string | null;
  /** The mask of the scopes that the token has now. */
  scopes: number;
  /** The contributor whose files are the only ones that the caller sees, see own-files.ts. Null if it sees all files of its team. */
  ownerId: string | null;
  /** The requirement of its operation, which a write states once more, see `stillAllowed`. */
  right: Right;
  /** Only of the kind `upload`. */
  uploadToken?: UploadToken;
}

/** The caller, as the row of a key or session describes it. */
export type CallerRow = Omit<TeamActor, "right"> & { teamStatus: "active" | "suspended" | "deleting" };

/** The content of an upload token, see upload-tokens.ts. */
export interface UploadToken {
  /** Names its files: the token's own, or that of its owner, so that another token of the owner has the same rights to them. */
  id: string;
  /** Counts its uploads, together with those of all tokens of its subject on the same day. */
  countedAs: { token: string } | { subject: string };
  teamId: string;
  /** SHA-256 of the token of the key or session that issued it. */
  issuerHash: string;
  /** For new uploads. */
  expiresAt: number;
  limits: {
    maxFiles: number;
    maxBytes?: number | undefined;
    maxFileBytes?: number | undefined;
    fileTypes?: string[] | undefined;
    /** Whether it may delete what it uploaded, see files/deletion.ts. */
    canDelete?: boolean | undefined;
  };
  /** The properties of each file. */
  properties: object;
}

/** Whether anyone may have the token, who sees a web page or its requests. */
export const isVisitor = ({ kind }: Pick<TeamActor, "kind">): boolean => kind === "public" || kind === "upload";
