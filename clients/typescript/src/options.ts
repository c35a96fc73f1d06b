/** How requests are sent: deadlines, retries, credentials, trace context. */

import { createHash, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";

import type { Fault } from "./faults.js";
import { wrongType } from "./fields.js";

/** A PEM text as bytes, or the path of a PEM file. */
export type PemSource = string | URL | Uint8Array;

/** When a failed attempt is repeated. Every attempt of a request has the same operation id, and all of them fit into
 * the request's deadline. */
export interface RetryPolicy {
  /** Attempts in all, the first one included; 10 when unset. */
  readonly maxAttempts?: number;
  /** Upper limit in milliseconds of the first delay, which doubles with each attempt; 100 when unset. */
  readonly firstDelayMs?: number;
  /** Upper limit in milliseconds of every delay that the service does not ask for; 5,000 when unset. */
  readonly maxDelayMs?: number;
  /** Longest delay in milliseconds that is waited when the service asks for it with `unavailable`; 10,000 when unset. A
   * longer one means that the cause lasts, such as an engine of sandboxes that does not run: the error is thrown
   * immediately. The delay of `rate_limited` says when the request will be accepted, so only the deadline limits it. */
  readonly maxUnavailableDelayMs?: number;
}

/** Options of one request or of one client; see `withOptions`. */
export interface CallOptions {
  /** Milliseconds for a request with all its attempts and transfers; 60,000 when unset. */
  readonly timeoutMs?: number;
  /** Ends the request early, with the reason of the signal. */
  readonly signal?: AbortSignal;
  /** Id of the operation; the same id is the same operation. Unset: a new one for each request. */
  readonly operationId?: string;
  /** Session for logs and limits of the services. */
  readonly session?: string;
  /** App for which the request is made. */
  readonly app?: string;
  /** W3C trace parent. Unset: that of the current span, where `@opentelemetry/api` is installed. */
  readonly traceparent?: string;
  /** W3C trace state. */
  readonly tracestate?: string;
  /** When failed attempts are repeated. */
  readonly retry?: RetryPolicy;
}

/** Limits of one wait for an outcome. */
export interface WaitOptions {
  /** Milliseconds to wait; those of the client when unset. */
  readonly timeoutMs?: number;
  /** Ends the wait early; the work continues. */
  readonly signal?: AbortSignal;
}

/** Trust and identity of a connection. */
export interface Tls {
  /** Authorities that sign the endpoint's certificate. Unset: those of Node.js. */
  readonly caCertificate?: PemSource;
  /** Certificate of this client, for an endpoint that identifies its callers by certificates. */
  readonly certificate?: PemSource;
  /** Private key of `certificate`. */
  readonly privateKey?: PemSource;
  /** Name that the endpoint's certificate must have. Unset: that of the target. */
  readonly serverName?: string;
}

const DEFAULT_TIMEOUT_MS = 60_000;
/** Metadata of HTTP/2 as gRPC allows it: printable ASCII. */
const METADATA_VALUE = /^[!-~](?:[ -~]*[!-~])?$/;
const DEFAULT_RETRY = { maxAttempts: 10, firstDelayMs: 100, maxDelayMs: 5_000, maxUnavailableDelayMs: 10_000 };

/** Milliseconds for a whole operation. */
export function timeoutOf(options: CallOptions): number {
  const { timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  if (typeof timeoutMs !== "number") throw wrongType("timeoutMs", "a number", timeoutMs);
  if (Number.isNaN(timeoutMs)) throw new TypeError("`timeoutMs` is not a number");
  return timeoutMs;
}

/** Most attempts of one request. */
export function maxAttemptsOf(retry: RetryPolicy | undefined): number {
  return retry?.maxAttempts ?? DEFAULT_RETRY.maxAttempts;
}

/** Whether the cause of a fault lasts longer than the policy waits for it. */
export function lasts(retry: RetryPolicy | undefined, fault: Fault): boolean {
  const maxDelayMs = retry?.maxUnavailableDelayMs ?? DEFAULT_RETRY.maxUnavailableDelayMs;
  return fault.code === "unavailable" && fault.retryAfterMs > maxDelayMs;
}

/** Milliseconds to wait after failed attempt number `attempt` (from 1): full jitter, never less than the service asks
 * for. */
export function retryDelayMs(
  retry: RetryPolicy | undefined,
  attempt: number,
  retryAfterMs: number,
  draw: () => number = Math.random,
): number {
  const first = retry?.firstDelayMs ?? DEFAULT_RETRY.firstDelayMs;
  const limit = Math.min(retry?.maxDelayMs ?? DEFAULT_RETRY.maxDelayMs, first * 2 ** (attempt - 1));
  return Math.max(retryAfterMs, limit * draw());
}

/** Longest id of an operation, a session, an app or a tenant. */
const MAX_ID_LENGTH = 128;
const ID = new RegExp(`^[!-~]{1,${MAX_ID_LENGTH}}$`);

/** The operation id of the next operation. A new one cannot be guessed. */
export function operationIdOf(options: CallOptions): string {
  if (options.operationId === undefined) return randomUUID();
  return checkId("operationId", options.operationId);
}

/** The id, if the services take it. An empty operation id would be a new operation for each repetition, and another one
 * that is not valid would be found out only after the work was stored. */
export function checkId(name: string, id: string): string {
  if (typeof id !== "string") throw wrongType(name, "text", id);
  if (!ID.test(id)) throw new TypeError(`\`${name}\` must be 1 to ${MAX_ID_LENGTH} printable ASCII characters without blanks`);
  return id;
}

/** The id of request number `number` that only prepares or completes an operation. */
export function auxiliaryId(operationId: string, number: number): string {
  const id = `${operationId}-${number}`;
  if (id.length <= MAX_ID_LENGTH) return id;
  return `${number}-${createHash("sha256").update(operationId).digest("hex")}`;
}

/** Throws if a value cannot be sent as metadata. A token that was read from a file often ends with a line break. The error
 * does not contain the value, which may be secret. */
export function checkMetadata(values: Readonly<Record<string, string | undefined>>): void {
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && typeof value !== "string") throw wrongType(name, "text", value);
    if (value !== undefined && !METADATA_VALUE.test(value)) {
      throw new TypeError(`\`${name}\` must be printable ASCII, not empty, and without blanks or line breaks at its ends`);
    }
  }
}

/** Most seconds that a message may name: a year. No service keeps work for longer. */
const MAX_MESSAGE_SECONDS = 365 * 86_400;

/** Checks a time for a message and rounds it up, since 0 means the longest time there. The end of its name is its unit:
 * seconds or milliseconds. */
export function messageTime(name: `${string}Ms` | `${string}Seconds`, value: number): number {
  if (typeof value !== "number") throw wrongType(name, "a number", value);
  const maximum = name.endsWith("Ms") ? MAX_MESSAGE_SECONDS * 1000 : MAX_MESSAGE_SECONDS;
  if (!(value >= 0 && value <= maximum)) throw new TypeError(`\`${name}\` is ${value}, which is not between 0 and ${maximum}`);
  return Math.ceil(value);
}

/** Longest name of a tool and longest id of a tool call, in bytes of UTF-8. */
const MAX_NAME_BYTES = 512;

/** Throws for a name of a tool or an id of a call that the services refuse. An unset id is made by the client. */
export function checkToolNames(tool: string, toolCallId: string | undefined): void {
  for (const [name, value] of [["tool", tool], ["toolCallId", toolCallId]] as const) {
    if (value === undefined && name === "toolCallId") continue;
    if (typeof value !== "string") throw wrongType(name, "text", value);
    if (value === "") throw new TypeError(`\`${name}\` must not be empty`);
    if (/\p{Cc}/u.test(value)) throw new TypeError(`\`${name}\` must not contain control characters`);
    if (Buffer.byteLength(value) > MAX_NAME_BYTES) {
      throw new TypeError(`\`${name}\` must not be longer than ${MAX_NAME_BYTES} bytes`);
    }
  }
}

/** A number of bytes for a message. */
export function byteCount(name: string, value: number): bigint {
  if (!Number.isSafeInteger(value) || value < 0) throw new TypeError(`\`${name}\` is not a number of bytes`);
  return BigInt(value);
}

/** The PEM text of a source. */
export function readPem(source: PemSource | undefined): Buffer | undefined {
  if (source === undefined) return undefined;
  return source instanceof Uint8Array ? Buffer.from(source) : readFileSync(source);
}
