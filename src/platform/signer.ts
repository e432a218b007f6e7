import { AwsV4Signer } from "aws4fetch";

export interface Signer {
  /** The private URL of an object: at the S3 endpoint, or `s3://bucket/key` without an endpoint. */
  url(key: string): string;
  /**
   * Returns a signed URL: anyone who has it can GET the object for this many seconds (1 to 604,800, S3's limit). Returns
   * null without credentials.
   * @param disposition replaces the Content-Disposition that the object was stored with
   */
  sign(key: string, expiresInSeconds: number, disposition?: string): Promise<string | null>;
}

interface SignerSettings {
  endpoint: string | null;
  bucket: string;
  credentials: { accessKeyId: string; secretAccessKey: string } | null;
}

/** Encodes by RFC 3986. aws4fetch leaves `!'()*` unencoded, and the signature then fails. */
function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** Create one per isolate, because its cache holds the signing key of the day. */
export function createSigner({ endpoint, bucket, credentials }: SignerSettings): Signer {
  const cache = new Map<string, ArrayBuffer>();
  const root = endpoint === null ? `s3://${bucket}` : `${endpoint}/${bucket}`;
  const urlOf = (key: string) => `${root}/${key.split("/").map(encodeSegment).join("/")}`;
  return {
    url: urlOf,
    async sign(key, expiresInSeconds, disposition) {
      if (credentials === null) return null;
      const override = disposition === undefined ? "" : `&response-content-disposition=${encodeSegment(disposition)}`;
      const url = `${urlOf(key)}?X-Amz-Expires=${expiresInSeconds}${override}`;
      const options = { ...credentials, service: "s3", region: "auto", cache, method: "GET", signQuery: true };
      const signed = await new AwsV4Signer({ ...options, url }).sign();
      return signed.url.href;
    },
  };
}
