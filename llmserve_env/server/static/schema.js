// Reads the schemas of an OpenAPI document: what a field may hold, in words, and the fields of an object.
const MAX_DEPTH = 3;

export function resolved(schema, document) {
  if (!schema?.$ref) return schema ?? {};
  const names = schema.$ref.replace(/^#\//, "").split("/");
  return names.reduce((found, name) => found?.[name], document) ?? {};
}

const alternatives = (schema) => schema.anyOf ?? schema.oneOf ?? null;

function bounds({ minimum, maximum, minLength, maxLength, maxItems }) {
  if (minimum !== undefined && maximum !== undefined) return ` from ${minimum} to ${maximum}`;
  if (minimum !== undefined) return ` of at least ${minimum}`;
  if (maximum !== undefined) return ` of at most ${maximum}`;
  if (maxLength !== undefined) return ` of ${minLength ?? 0} to ${maxLength} characters`;
  return maxItems === undefined ? "" : ` of at most ${maxItems}`;
}

// "integer from 1 to 512", "FP16 or INT8", "list of string"
export function typeOf(given, document) {
  const schema = resolved(given, document);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const either = alternatives(schema);
  if (either) return [...new Set(either.map((one) => typeOf(one, document)))].join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items ?? {}, document)}${bounds(schema)}`;
  if (schema.type === "object" || schema.properties) return "object";
  return (schema.type ?? "any value") + bounds(schema);
}

function objectIn(given, document) {
  const schema = resolved(given, document);
  if (schema.properties) return schema;
  if (schema.type === "array") return objectIn(schema.items ?? {}, document);
  return (alternatives(schema) ?? []).map((one) => objectIn(one, document)).find(Boolean) ?? null;
}

// Fields of an object and of the objects in it, by dotted names.
export function fieldsOf(given, document, prefix = "", depth = 0) {
  const schema = objectIn(given, document);
  if (!schema || depth === MAX_DEPTH) return [];
  return Object.entries(schema.properties).flatMap(([name, field]) => {
    const found = resolved(field, document);
    const row = {
      name: prefix + name,
      type: typeOf(field, document),
      isRequired: (schema.required ?? []).includes(name),
      preset: found.default ?? field.default,
      meaning: field.description ?? found.description ?? "",
    };
    return [row, ...fieldsOf(field, document, `${prefix}${name}.`, depth + 1)];
  });
}

// A body to begin with: an example of the schema, or an empty object.
export function exampleOf(given, document) {
  const schema = resolved(given, document);
  const found = schema.examples?.[0] ?? schema.example;
  if (found !== undefined) return found;
  const first = alternatives(schema)?.find((one) => resolved(one, document).properties);
  return first ? exampleOf(first, document) : {};
}
