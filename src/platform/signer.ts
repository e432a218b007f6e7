import { AwsV4Signer } from "aws4fetch";

export interface Signer {
  /** The URL of an object at the S3 endpoint. It is private. */
  url(key: string): string;
  /** A signed URL: anyone who has it can GET the object for this many seconds (1 to 604,800, S3's limit). */
  sign(key: string, expiresInSeconds: number): Promise<string>;
}

interface SignerSettings {
  endpoint: string;
  bucket: string;
  accessKeyId: string;
  secretAccessKey: string;
}

/** Encodes by RFC 3986. aws4fetch leaves `!'()*` unencoded, and the signature then fails. */
function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** Create one per isolate, because its cache holds the signing key of the day. */
export function createSigner({ endpoint, bucket, accessKeyId, secretAccessKey }: SignerSettings): Signer {
  const cache = new Map<string, ArrayBuffer>();
  const credentials = { accessKeyId, secretAccessKey, service: "s3", region: "auto", cache };
  const urlOf = (key: string) => `${endpoint}/${bucket}/${key.split("/").map(encodeSegment).join("/")}`;
  return {
    url: urlOf,
    async sign(key, expiresInSeconds) {
      const url = `${urlOf(key)}?X-Amz-Expires=${expiresInSeconds}`;
      const signed = await new AwsV4Signer({ ...credentials, url, method: "GET", signQuery: true }).sign();
      return signed.url.href;
    },
  };
}
