// The HTTP interface of this server, drawn from its OpenAPI document, with a form to try each operation.
import { base } from "./api.js";
import { escaped, prose } from "./format.js";
import { exampleOf, fieldsOf, typeOf } from "./schema.js";
import { startTheme } from "./theme.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const $ = (id) => document.getElementById(id);
const JSON_TYPE = "application/json";

function operationsOf(described) {
  return Object.entries(described.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => {
      const operation = methods[method];
      const body = operation.requestBody?.content?.[JSON_TYPE]?.schema ?? null;
      const id = `${method}${path.replace(/[^a-z0-9]+/gi, "-")}`;
      return { path, method, operation, body, id, tag: operation.tags?.[0] ?? "Other", parameters: operation.parameters ?? [] };
    }),
  );
}

const table = (heads, rows) => `<div class="scrolls" tabindex="0"><table>
  <thead><tr>${heads.map((head) => `<th scope="col">${head}</th>`).join("")}</tr></thead>
  <tbody>${rows.map((row) => `<tr>${row.map((cell) => `<td>${cell}</td>`).join("")}</tr>`).join("")}</tbody></table></div>`;

function fieldTable(schema, described) {
  const rows = fieldsOf(schema, described).map(({ name, type, isRequired, preset, meaning }) => [
    `<code>${escaped(name)}</code>`,
    escaped(type),
    isRequired ? "required" : preset === undefined || preset === null ? "optional" : `<code>${escaped(JSON.stringify(preset))}</code>`,
    meaning ? prose(meaning) : escaped(name.split(".").pop().replaceAll("_", " ")),
  ]);
  return rows.length ? table(["Field", "Holds", "Default", "Meaning"], rows) : "";
}

function parameterTable(parameters, described) {
  const rows = parameters.map(({ name, in: place, required, schema, description }) => [
    `<code>${escaped(name)}</code>`,
    escaped(typeOf(schema, described)),
    required ? "required" : "optional",
    prose(description ?? schema?.description ?? `in the ${place}`),
  ]);
  return `<h3>Parameters</h3>${table(["Name", "Holds", "Default", "Meaning"], rows)}`;
}

function answersOf(operation, described) {
  const rows = Object.entries(operation.responses ?? {}).map(([status, response]) => [
    `<code>${status}</code>`,
    prose(response.description || "the answer"),
  ]);
  const good = operation.responses?.["200"]?.content?.[JSON_TYPE]?.schema;
  return `<h3>Answers</h3>${table(["Status", "Meaning"], rows)}${good ? fieldTable(good, described) : ""}`;
}

function formOf({ body, id, parameters, method, path }, described) {
  const inputs = parameters.map(({ name }) => `<label>${escaped(name)}<input name="${escaped(name)}" autocomplete="off"></label>`);
  const example = body ? JSON.stringify(exampleOf(body, described), null, 2) : "";
  const area = body ? `<label>Body<textarea name="body" spellcheck="false">${escaped(example)}</textarea></label>` : "";
  return `<form class="try" aria-label="Try ${method.toUpperCase()} ${escaped(path)}">${inputs.join("")}${area}
    <button class="primary">Send</button><div id="${id}-answer" role="status"></div></form>`;
}

function addressOf({ path, parameters }, fields) {
  const query = new URLSearchParams();
  let address = path;
  for (const { name, in: place } of parameters) {
    const value = fields.get(name);
    if (place === "path") address = address.replace(`{${name}}`, encodeURIComponent(value));
    else if (place === "query" && value !== "") query.set(name, value);
  }
  return base + address + (query.size ? `?${query}` : "");
}

async function send(found, form, place) {
  const fields = new FormData(form);
  const options = { method: found.method.toUpperCase(), headers: {} };
  if (found.body) Object.assign(options, { body: fields.get("body"), headers: { "content-type": JSON_TYPE } });
  place.textContent = "Waiting for the answer.";
  const response = await fetch(addressOf(found, fields), options).catch((error) => ({ status: error.message, text: async () => "" }));
  const text = await response.text();
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not JSON: shown as it came.
  }
  place.innerHTML = `<p>Answer ${escaped(response.status)}</p><pre tabindex="0">${escaped(shown)}</pre>`;
}

// An operation's content is made when it is first opened.
function fill(details, found, described) {
  const { operation, body, parameters } = found;
  const inside = document.createElement("div");
  inside.className = "inside";
  inside.innerHTML = `<p>${prose(operation.description ?? operation.summary ?? "")}</p>
    ${parameters.length ? parameterTable(parameters, described) : ""}
    ${body ? `<h3>Body</h3>${fieldTable(body, described)}` : ""}
    ${answersOf(operation, described)}${formOf(found, described)}`;
  const form = inside.querySelector("form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(found, form, form.querySelector("[role=status]"));
  });
  details.append(inside);
}

function show(described) {
  const groups = {};
  for (const one of operationsOf(described)) (groups[one.tag] ??= []).push(one);
  for (const [tag, operations] of Object.entries(groups)) {
    $("contents").insertAdjacentHTML("beforeend", `<h2>${escaped(tag)}</h2>`);
    $("operations").insertAdjacentHTML("beforeend", `<h2>${escaped(tag)}</h2>`);
    for (const found of operations) {
      const { id, method, path, operation } = found;
      $("contents").insertAdjacentHTML("beforeend", `<a href="#${id}">${method.toUpperCase()} ${escaped(path)}</a>`);
      const details = document.createElement("details");
      details.id = id;
      details.innerHTML = `<summary><span class="method ${method}">${method.toUpperCase()}</span><code>${escaped(path)}</code><span class="quiet">${escaped(operation.summary ?? "")}</span></summary>`;
      details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) fill(details, found, described); });
      $("operations").append(details);
    }
  }
}

function openNamed() {
  const details = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (details instanceof HTMLDetailsElement) {
    details.open = true;
    details.scrollIntoView();
  }
}

async function main() {
  startTheme($("theme"));
  const response = await fetch(base + "/openapi.json");
  if (!response.ok) throw new Error(`The server answered ${response.status} instead of its description; reload the page.`);
  show(await response.json());
  $("state").textContent = "";
  window.addEventListener("hashchange", openNamed);
  openNamed();
}

main().catch((error) => { $("state").textContent = error.message; });
