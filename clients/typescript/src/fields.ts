/** Checks the values of a request against its schema, for callers without a compiler: the runtime of Protocol Buffers
 * reports a wrong type without the name of the argument, and accepts a number as text. */

import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";

const MAX_UINT32 = 2 ** 32 - 1;

/** Throws a `TypeError` that names the first field with a value of the wrong type. */
export function checkFields(schema: DescMessage, init: unknown): void {
  const values = init as Record<string, unknown>;
  for (const field of schema.fields) {
    const group = field.oneof === undefined ? undefined : (values[field.oneof.localName] as { case?: string; value?: unknown });
    const value = field.oneof === undefined ? values[field.localName] : group?.case === field.localName ? group.value : undefined;
    if (value !== undefined) checkField(field, value, field.localName);
  }
}

function checkField(field: DescField, value: unknown, name: string): void {
  if (field.fieldKind === "list") {
    if (!Array.isArray(value)) throw wrongType(name, "a list", value);
    value.forEach((item, index) => checkItem(field.listKind, field, item, `${name}[${index}]`));
  } else if (field.fieldKind === "map") {
    if (typeof value !== "object" || value === null) throw wrongType(name, "an object", value);
    for (const [key, item] of Object.entries(value)) checkItem(field.mapKind, field, item, `${name}.${key}`);
  } else {
    checkItem(field.fieldKind, field, value, name);
  }
}

function checkItem(
  kind: "scalar" | "message" | "enum",
  field: { readonly scalar?: ScalarType | undefined; readonly message?: DescMessage | undefined },
  value: unknown,
  name: string,
): void {
  if (kind === "scalar") {
    checkScalar(field.scalar, value, name);
  } else if (kind === "enum") {
    if (typeof value !== "number") throw wrongType(name, "a number", value);
  } else {
    if (typeof value !== "object" || value === null) throw wrongType(name, "an object", value);
    if (field.message !== undefined) checkFields(field.message, value);
  }
}

function checkScalar(type: ScalarType | undefined, value: unknown, name: string): void {
  switch (type) {
    case ScalarType.STRING:
      if (typeof value !== "string") throw wrongType(name, "text", value);
      return;
    case ScalarType.BYTES:
      if (!(value instanceof Uint8Array)) throw wrongType(name, "text or bytes", value);
      return;
    case ScalarType.BOOL:
      if (typeof value !== "boolean") throw wrongType(name, "true or false", value);
      return;
    default:
      if (typeof value !== "number" && typeof value !== "bigint") throw wrongType(name, "a number", value);
      if (type === ScalarType.UINT32 && !(Number.isInteger(value) && value >= 0 && value <= MAX_UINT32)) {
        throw new TypeError(`\`${name}\` is ${value}, which is not a whole number from 0 to ${MAX_UINT32}`);
      }
  }
}

/** The error for a value of another type than the one that is needed. */
export function wrongType(name: string, expected: string, value: unknown): TypeError {
  const found = value === null || value === undefined ? String(value) : typeof value === "object" ? describeObject(value) : typeof value;
  return new TypeError(`\`${name}\` must be ${expected}, not ${found}`);
}

function describeObject(value: object): string {
  return Array.isArray(value) ? "a list" : (value.constructor?.name ?? "an object");
}
