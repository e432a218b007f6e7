import createClient from "openapi-fetch";
import type { components, paths, webhooks } from "./api.ts";

/* A program that uses the API by generated types. test/client/generated.test.ts generates `api.ts`, and compiles and runs both. */

const [baseUrl = "", token = ""] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

function dataOf<T>({ data, error }: { data?: T; error?: components["schemas"]["Error"] }): T {
  if (data === undefined) throw new Error(error?.message);
  return data;
}

const uploaded = await client.POST("/docs/v1/uploads", {
  body: { properties: JSON.stringify({ folder: "a/b" }), file: "hello" },
  bodySerializer: ({ properties = "{}", file }) => {
    const form = new FormData();
    form.append("properties", properties);
    form.append("file", new Blob([file]), "note.txt");
    return form;
  },
});
const { _id: id, folder } = dataOf(uploaded).data;
const listed = dataOf(await client.GET("/docs/v1/uploads", { params: { query: { folder, limit: 5 } } }));
const signed = dataOf(await client.GET("/docs/v1/uploads/{id}", { params: { path: { id } } }));
const content = await (await fetch(signed.signedUrl)).text();
const deleted = dataOf(await client.DELETE("/docs/v1/uploads/{id}", { params: { path: { id } } }));
const missing = await client.GET("/docs/v1/uploads/{id}/metadata", { params: { path: { id } } });
const account = { email: "ada@example.com", password: "correct horse battery" };
const created = dataOf(await client.POST("/auth/v1/users", { body: account })).data;
const user = dataOf(await client.GET("/auth/v1/users/{id}", { params: { path: { id: created._id } } })).data;

/** Compiles only if the message of a webhook has a type. */
type Message = webhooks["event"]["post"]["requestBody"]["content"]["application/json"];
export const typeOf = ({ type }: Message): components["schemas"]["WebhookMessage"]["type"] => type;

console.log(
  JSON.stringify({
    folder,
    isListed: listed.data.some((file) => file._id === id),
    content,
    isDeleted: deleted.status,
    missing: missing.error?.code,
    email: user.email,
  }),
);
