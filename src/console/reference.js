import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";

/*
 * The page at /reference. It runs in a sandbox with an opaque origin, so it can reach neither the console's session nor
 * any other storage of this origin (see http/pages.ts).
 */

const quote = (value) => JSON.stringify(value);

/** The parts of a request that a sample needs. */
function partsOf(request) {
  const body = request.get("body");
  const headers = request.get("headers")?.toJS() ?? {};
  return {
    url: request.get("url"),
    method: request.get("method"),
    headers,
    body: typeof body === "string" ? body : "",
  };
}

function javaScriptSample(request) {
  const { url, method, headers, body } = partsOf(request);
  const options = [
    `  method: ${quote(method)},`,
    `  headers: ${quote(headers)},`,
    ...(body ? [`  body: ${quote(body)},`] : []),
  ];
  return [
    `const response = await fetch(${quote(url)}, {`,
    ...options,
    "});",
    "console.log(await response.json());",
  ].join("\n");
}

function pythonSample(request) {
  const { url, method, headers, body } = partsOf(request);
  const data = body ? `, data=${quote(body)}` : "";
  return [
    "import requests",
    "",
    `response = requests.request(${quote(method)}, ${quote(url)}, headers=${quote(headers)}${data})`,
    "print(response.json())",
  ].join("\n");
}

const scheme = matchMedia("(prefers-color-scheme: dark)");
const applyScheme = () => document.documentElement.classList.toggle("dark-mode", scheme.matches);
scheme.addEventListener("change", applyScheme);
applyScheme();

/** Names the lists of options and lets the keyboard scroll samples and tables. Swagger UI does neither. */
function improveAccessibility() {
  for (const select of document.querySelectorAll("select:not([aria-label])"))
    select.ariaLabel = select.closest("[data-param-name]")?.dataset.paramName ?? "Example";
  for (const wide of document.querySelectorAll(":is(.microlight, .info table):not([tabindex])")) wide.tabIndex = 0;
}
new MutationObserver(improveAccessibility).observe(document.body, { childList: true, subtree: true });

/** Leaves out the list of servers, because there is only this one. */
const withoutServers = { wrapComponents: { ServersContainer: () => () => null } };

SwaggerUI({
  url: "/openapi.json",
  dom_id: "#reference",
  docExpansion: "list",
  filter: true,
  // The default theme has too little contrast.
  syntaxHighlight: { theme: "tomorrow-night" },
  // By default the document would be sent to a validator on another host.
  validatorUrl: null,
  requestSnippetsEnabled: true,
  requestSnippets: {
    generators: {
      curl_bash: { title: "curl", syntax: "bash" },
      javascript: { title: "JavaScript", syntax: "javascript" },
      python: { title: "Python", syntax: "python" },
    },
    defaultExpanded: true,
  },
  plugins: [
    withoutServers,
    { fn: { requestSnippetGenerator_javascript: javaScriptSample, requestSnippetGenerator_python: pythonSample } },
  ],
});
