/** gRPC for the client: addresses, metadata, and the errors of failed attempts. */

import {
  create,
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type DescService,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createAsyncIterable } from "@connectrpc/connect/protocol";
import { createGrpcTransport } from "@connectrpc/connect-node";

import type { Deadline } from "./deadline.js";
import { deadlineError, DrayageError, errorFor, type FaultCode, faultOf, isCertificateError, makeFault, UnauthenticatedError } from "./faults.js";
import { wrongType } from "./fields.js";
import type { OptionNames } from "./option_names.js";
import { type CallOptions, checkId, checkMetadata, lasts, maxAttemptsOf, type PemSource, readPem, retryDelayMs, type Tls } from "./options.js";
import { NO_REPLY, SessionManager } from "./session_manager.js";
import { traceContext } from "./trace.js";
import * as contracts from "./v1/index.js";
import { FaultSchema } from "./v1/index.js";

/** Addresses of the services, and credentials of the caller. */
export interface ConnectionOptions {
  /** Bearer token of the caller. It does not travel to other machines without TLS. */
  readonly token?: string;
  /** Tenant, where the endpoint does not know its callers. */
  readonly tenant?: string;
  readonly tls?: Tls;
  /** Whether the connection has no TLS. */
  readonly plaintext?: boolean;
  /** Other addresses for single services, such as `{"dray.v1.Sandboxes": "sandbox-transfer:50051"}`. */
  readonly endpoints?: Readonly<Record<string, string>>;
  /** Authorities that sign the certificate of the store. Unset: those of Node.js. */
  readonly storeCa?: PemSource;
}

export const CONNECTION_OPTIONS: OptionNames<ConnectionOptions> = {
  token: true,
  tenant: true,
  tls: true,
  plaintext: true,
  endpoints: true,
  storeCa: true,
};

const CODES: Partial<Record<Code, FaultCode>> = {
  [Code.InvalidArgument]: "invalid_argument",
  [Code.NotFound]: "not_found",
  [Code.PermissionDenied]: "denied",
  [Code.Unauthenticated]: "denied",
  [Code.OutOfRange]: "too_large",
  [Code.Unimplemented]: "unsupported",
  [Code.ResourceExhausted]: "rate_limited",
  [Code.DeadlineExceeded]: "timeout",
  [Code.Unavailable]: "unavailable",
};
/** A long wait for an outcome must not be cut by a silent connection. */
const PING_INTERVAL_MS = 60_000;
/** Longest time of one attempt, about 27 hours: a time in the metadata has at most eight digits (gRPC over HTTP/2). */
const MAX_ATTEMPT_MS = 99_999_999;
/** Most bytes of a reply, 32 times the limit of the services; the library's own limit is 4 GiB. */
const MAX_REPLY_BYTES = 4 << 20;
/** Texts of the library for a reply that this client refuses, and for one whose stream ended early. Their status codes are
 * those of a busy server and of a wrong request. */
const TOO_LARGE_REPLY = /larger than configured readMaxBytes/;
const INCOMPLETE_REPLY = /^protocol error: (missing status|incomplete envelope|missing output message)/;
const HOST_AND_PORT = /^(?:\[[^[\]\s/]+\]|[^\s/:@?#[\]\\]+):([0-9]{1,5})$/;
const LOOPBACK = /^(localhost|\[::1\]|127(\.\d{1,3}){3})$/;

/** Full names of the services of the contracts, such as `dray.v1.Sandboxes`. */
const SERVICES = (Object.values(contracts) as unknown[]).filter(isService).map((service) => service.typeName);

function isService(value: unknown): value is DescService {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "service";
}

/** One HTTP/2 connection for each address, opened when it is needed. */
export class Connection {
  readonly #target: string;
  readonly #options: ConnectionOptions;
  readonly #open = new Map<string, { transport: Transport; manager: SessionManager }>();
  #isClosed = false;

  constructor(target: string, options: ConnectionOptions) {
    if (typeof target !== "string") throw wrongType("target", "an address such as `127.0.0.1:50051`", target);
    if (options.plaintext && options.tls !== undefined) throw new TypeError("`tls` and `plaintext` exclude each other");
    if ((options.tls?.certificate === undefined) !== (options.tls?.privateKey === undefined)) {
      throw new TypeError("`certificate` and `privateKey` must be set together");
    }
    checkMetadata({ token: options.token });
    if (options.tenant !== undefined) checkId("tenant", options.tenant);
    for (const service of Object.keys(options.endpoints ?? {})) {
      if (!SERVICES.includes(service)) {
        throw new TypeError(`\`endpoints\` has no service \`${service}\`; the services are ${SERVICES.join(", ")}`);
      }
    }
    for (const address of [target, ...Object.values(options.endpoints ?? {})]) {
      const { hostname } = addressParts(address);
      if (options.plaintext && options.token !== undefined && !LOOPBACK.test(hostname)) {
        throw new TypeError(`a token does not travel to ${address} without TLS`);
      }
    }
    this.#target = target;
    this.#options = options;
  }

  /** Sends a request, and repeats it within the deadline after a failure that may pass. If a repetition of a request that
   * `removes` a path does not find it, an earlier attempt has removed it: the reply was lost. */
  async call<Request extends DescMessage, Reply extends DescMessage>(
    method: DescMethodUnary<Request, Reply>,
    request: MessageInitShape<Request>,
    operationId: string,
    options: CallOptions,
    deadline: Deadline,
    removes = false,
  ): Promise<MessageShape<Reply>> {
    const header = await this.#metadata(options, operationId);
    const transport = this.#transportOf(method.parent.typeName);
    for (let number = 1; ; number++) {
      const timeoutMs = Math.min(Math.ceil(deadline.remainingMs()), MAX_ATTEMPT_MS);
      try {
        return (await transport.unary(method, deadline.signal, timeoutMs, header, request)).message;
      } catch (failure) {
        if (removes && number > 1 && isMissingPath(errorOf(failure))) return create(method.output);
        await this.#beforeRetry(failure, false, number, options, deadline);
      }
    }
  }

  /**
   * Sends a request and yields the messages of its reply, which ends with one for which `isLast` holds. The request is
   * repeated only before the first message. Leaving the loop cancels it, and its end frees the deadline.
   */
  async *stream<Request extends DescMessage, Reply extends DescMessage>(
    method: DescMethodServerStreaming<Request, Reply>,
    request: MessageInitShape<Request>,
    operationId: string,
    options: CallOptions,
    deadline: Deadline,
    isLast: (message: MessageShape<Reply>) => boolean,
  ): AsyncGenerator<MessageShape<Reply>, void, undefined> {
    let hasBegun = false;
    let isComplete = false;
    try {
      const header = await this.#metadata(options, operationId);
      const transport = this.#transportOf(method.parent.typeName);
      for (let number = 1; ; number++) {
        const timeoutMs = Math.min(Math.ceil(deadline.remainingMs()), MAX_ATTEMPT_MS);
        try {
          const input = createAsyncIterable([request]);
          // The timeout is only in the metadata: the library's own timer would keep the process running after a reader
          // has left.
          header.set("grpc-timeout", `${timeoutMs}m`);
          const response = await transport.stream(method, deadline.signal, undefined, header, input);
          for await (const message of response.message) {
            hasBegun = true;
            isComplete = isLast(message);
            yield message;
          }
          if (isComplete) return;
          throw incompleteReply();
        } catch (failure) {
          await this.#beforeRetry(failure, hasBegun, number, options, deadline);
        }
      }
    } finally {
      deadline.cancel();
    }
  }

  /** Closes the connections, with the requests on them. */
  close(): void {
    this.#isClosed = true;
    for (const { manager } of this.#open.values()) manager.abort();
    this.#open.clear();
  }

  /** Waits before the next attempt. Throws the error after the last attempt. */
  async #beforeRetry(
    failure: unknown,
    isFinal: boolean,
    number: number,
    options: CallOptions,
    deadline: Deadline,
  ): Promise<void> {
    deadline.signal.throwIfAborted();
    // Closing broke the connection, and another attempt would open a new one.
    if (this.#isClosed) throw closedError();
    const error = errorOf(failure);
    const delayMs = retryDelayMs(options.retry, number, error.fault.retryAfterMs);
    const isLast = isFinal || number >= maxAttemptsOf(options.retry) || !deadline.allows(delayMs);
    if (!error.fault.retryable || lasts(options.retry, error.fault) || isLast) throw error;
    await deadline.wait(delayMs);
  }

  #transportOf(service: string): Transport {
    // A connection that is opened after `close` would stay open.
    if (this.#isClosed) throw closedError();
    const target = this.#options.endpoints?.[service] ?? this.#target;
    const known = this.#open.get(target);
    if (known !== undefined) return known.transport;
    const baseUrl = `${this.#options.plaintext ? "http" : "https"}://${target}`;
    const manager = new SessionManager(baseUrl, { pingIntervalMs: PING_INTERVAL_MS }, this.#nodeOptions());
    const transport = createGrpcTransport({ baseUrl, sessionManager: manager, readMaxBytes: MAX_REPLY_BYTES });
    this.#open.set(target, { transport, manager });
    return transport;
  }

  #nodeOptions(): Record<string, unknown> {
    const tls = this.#options.tls;
    const pairs = {
      ca: readPem(tls?.caCertificate),
      cert: readPem(tls?.certificate),
      key: readPem(tls?.privateKey),
      servername: tls?.serverName,
    };
    return Object.fromEntries(Object.entries(pairs).filter(([, value]) => value !== undefined));
  }

  async #metadata(options: CallOptions, operationId: string): Promise<Headers> {
    const { token, tenant } = this.#options;
    const { session, app, traceparent, tracestate } = options;
    for (const [name, id] of Object.entries({ session, app })) if (id !== undefined) checkId(name, id);
    checkMetadata({ traceparent, tracestate });
    const pairs = {
      authorization: token === undefined ? undefined : `Bearer ${token}`,
      "dray-tenant": tenant,
      "dray-operation": operationId,
      "dray-session": session,
      "dray-app": app,
      ...(await traceContext(options)),
    };
    const header = new Headers();
    for (const [name, value] of Object.entries(pairs)) if (value !== undefined) header.set(name, value);
    return header;
  }
}

/** The parts of an address such as `files.example.org:50051`. Without a port, that of HTTP would be used. */
function addressParts(address: string): URL {
  const port = Number(HOST_AND_PORT.exec(address)?.[1]);
  if (port >= 1 && port <= 65_535) {
    try {
      return new URL(`https://${address}`);
    } catch {
      // The error is reported below.
    }
  }
  throw new TypeError(
    `\`${address}\` is not an address such as files.example.org:50051, a host and a port from 1 to 65535 without a scheme`,
  );
}

const UNREACHABLE_ADVICE =
  "Check that the address is right and that a system serves gRPC there, as `dray up --grpc ADDRESS` does.";

function closedError(): Error {
  return new Error("the client is closed");
}

/** The exception for a request that ended as if it had succeeded, without its complete reply. */
function incompleteReply(cause?: unknown): DrayageError {
  return errorFor(
    makeFault("unavailable", "The reply ended before it was complete.", {
      detail: "incomplete_reply",
      advice: "Try again; the same operation id continues the same operation.",
      retryable: true,
    }),
    { cause },
  );
}

/** The exception for a failed attempt: the fault of the service, or a fault for a failure of the connection. */
export function errorOf(failure: unknown): DrayageError {
  if (failure instanceof DrayageError) return failure;
  const error = ConnectError.from(failure);
  const [fault] = error.findDetails(FaultSchema);
  if (fault !== undefined) {
    const converted = faultOf(fault);
    return error.code === Code.Unauthenticated
      ? new UnauthenticatedError(converted, { cause: error })
      : errorFor(converted, { cause: error });
  }
  if (error.code === Code.DeadlineExceeded) return deadlineError();
  if (error.rawMessage === NO_REPLY || INCOMPLETE_REPLY.test(error.rawMessage)) return incompleteReply(error);
  if (error.code === Code.ResourceExhausted && TOO_LARGE_REPLY.test(error.rawMessage)) {
    return errorFor(makeFault("internal", error.rawMessage, { detail: "reply_too_large" }), { cause: error });
  }
  const codes = systemCodes(error);
  // Another attempt would get the same certificate, or the same endpoint without TLS.
  if (codes.some(isCertificateError)) {
    const advice = "Check `caCertificate` and `serverName` of `tls`.";
    return errorFor(makeFault("unavailable", error.rawMessage, { detail: "untrusted_certificate", advice }), {
      cause: error,
    });
  }
  if (codes.includes("ERR_SSL_WRONG_VERSION_NUMBER")) {
    const advice = "Pass `plaintext: true` if that is meant, as for `dray up` on this machine.";
    const detail = "endpoint_without_tls";
    const converted = makeFault("unavailable", "The endpoint does not use TLS.", { detail, advice });
    return errorFor(converted, { cause: error });
  }
  // A broken connection has no status of gRPC. The library reports it as aborted, or as cancelled if the peer ended the
  // stream; the caller's own cancellation was checked before.
  const isBroken = codes.length > 0 || error.code === Code.Aborted || error.code === Code.Canceled;
  const code = isBroken ? "unavailable" : (CODES[error.code] ?? "internal");
  const reason = error.rawMessage || `the request failed with ${Code[error.code]}`;
  const message = code === "unavailable" ? `The service could not be reached: ${reason.replace(/\.$/, "")}.` : reason;
  const converted = makeFault(code, message, {
    detail: Code[error.code]?.replace(/\B[A-Z]/g, "_$&").toLowerCase() ?? "",
    advice: code === "unavailable" ? UNREACHABLE_ADVICE : "",
    retryable: isBroken || error.code === Code.Unavailable || error.code === Code.ResourceExhausted,
  });
  return error.code === Code.Unauthenticated
    ? new UnauthenticatedError(converted, { cause: error })
    : errorFor(converted, { cause: error });
}

/** Whether a path, and not its sandbox or session, does not exist. */
function isMissingPath({ fault }: DrayageError): boolean {
  return fault.code === "not_found" && fault.detail === "not_found";
}

/** The codes of Node.js in the chain of causes, such as `ECONNREFUSED`. */
function systemCodes(error: Error): string[] {
  const codes: string[] = [];
  const seen = new Set<unknown>();
  for (let cause: unknown = error.cause; cause instanceof Error && !seen.has(cause); cause = cause.cause) {
    seen.add(cause);
    if ("code" in cause && typeof cause.code === "string") codes.push(cause.code);
  }
  return codes;
}
