/* Demonstrates the upload element. In production, a page has a public key or gets a token from its server. */
const form = document.querySelector("form");
const upload = document.querySelector("stowage-upload");
const output = document.querySelector("output");

upload.setAttribute("url", location.origin);
upload.getToken = () => document.querySelector("#token").value;
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const ids = new FormData(form).getAll(upload.getAttribute("name"));
  output.textContent = `The form submits recordings=${ids.join("&recordings=")}`;
});
