/** Failures: what happened, what to do, and whether the same request may succeed later. */

import { type Fault as FaultMessage, FaultCode as FaultCodes, type InvalidParameter } from "./v1/index.js";

/** The closed set of failure codes; `detail` of a fault is more precise. */
export type FaultCode =
  | "invalid_argument"
  | "not_found"
  | "denied"
  | "too_large"
  | "unsupported"
  | "rate_limited"
  | "timeout"
  | "unavailable"
  | "internal";

const CODES: Partial<Record<FaultCodes, FaultCode>> = {
  [FaultCodes.INVALID_ARGUMENT]: "invalid_argument",
  [FaultCodes.NOT_FOUND]: "not_found",
  [FaultCodes.DENIED]: "denied",
  [FaultCodes.TOO_LARGE]: "too_large",
  [FaultCodes.UNSUPPORTED]: "unsupported",
  [FaultCodes.RATE_LIMITED]: "rate_limited",
  [FaultCodes.TIMEOUT]: "timeout",
  [FaultCodes.UNAVAILABLE]: "unavailable",
};

/** A failure as the service reports it. Message and advice may be shown to a model. */
export interface Fault {
  readonly code: FaultCode;
  /** One sentence on what happened. */
  readonly message: string;
  /** The precise reason, such as `ssrf_blocked`; empty when the code is precise enough. */
  readonly detail: string;
  /** One sentence on what to do next; empty when there is nothing to advise. */
  readonly advice: string;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** Milliseconds to wait before the same request is sent again. */
  readonly retryAfterMs: number;
  /** Trace id to quote to an operator. */
  readonly traceId: string;
}

/** A fault of the client itself. */
export function makeFault(code: FaultCode, message: string, more: Partial<Fault> = {}): Fault {
  return { code, message, detail: "", advice: "", retryable: false, retryAfterMs: 0, traceId: "", ...more };
}

/** Converts the protobuf message. A code that only a newer service knows counts as `internal`. */
export function faultOf(message: FaultMessage | undefined): Fault {
  if (message === undefined) return makeFault("internal", "The service gave no reason.");
  return {
    code: CODES[message.code] ?? "internal",
    message: message.message,
    detail: message.detail,
    advice: message.advice,
    retryable: message.retryable,
    retryAfterMs: Number(message.retryAfterMs),
    traceId: message.traceId,
  };
}

/** A request that failed after all attempts; `fault` contains the reason and the advice. */
export class DrayageError extends Error {
  constructor(
    readonly fault: Fault,
    options?: ErrorOptions,
  ) {
    super(`${fault.message} ${fault.advice}`.trim(), options);
    this.name = new.target.name;
  }
}

/** The request is wrong; sending it again changes nothing. */
export class InvalidArgumentError extends DrayageError {}

/** The resource that the request names does not exist. */
export class NotFoundError extends DrayageError {}

/** A policy or a permission refuses the request. */
export class DeniedError extends DrayageError {}

/** The endpoint does not know the caller: no token, a wrong one, or an unknown certificate. */
export class UnauthenticatedError extends DeniedError {}

/** A size limit was exceeded. */
export class TooLargeError extends DrayageError {}

/** The service does not offer what the request asks for. */
export class UnsupportedError extends DrayageError {}

/** Too many requests at one time; the same request may succeed later. */
export class RateLimitedError extends DrayageError {}

/** The deadline passed. Whether the request had effects is unknown: ask with the same operation id. */
export class DeadlineError extends DrayageError {}

/** A service, or another system that it needs, could not be reached or failed. */
export class UnavailableError extends DrayageError {}

/** A defect of the service. */
export class InternalError extends DrayageError {}

/** Bytes that arrived are not those that were announced. */
export class IntegrityError extends DrayageError {}

/** An argument of a tool call that the model can correct. */
export class InvalidParameterError extends DrayageError {
  /** Name of the top-level argument. */
  readonly parameter: string;
  /** JSON pointer of the value. */
  readonly pointer: string;
  /** The text that the model gets as the result of the tool. */
  readonly toolMessage: string;

  constructor(invalid: InvalidParameter) {
    super(faultOf(invalid.fault));
    this.parameter = invalid.parameter;
    this.pointer = invalid.pointer;
    this.toolMessage = invalid.toolMessage;
  }
}

const ERRORS: Record<FaultCode, new (fault: Fault, options?: ErrorOptions) => DrayageError> = {
  invalid_argument: InvalidArgumentError,
  not_found: NotFoundError,
  denied: DeniedError,
  too_large: TooLargeError,
  unsupported: UnsupportedError,
  rate_limited: RateLimitedError,
  timeout: DeadlineError,
  unavailable: UnavailableError,
  internal: InternalError,
};

/** The exception for a fault. */
export function errorFor(fault: Fault, options?: ErrorOptions): DrayageError {
  if (fault.detail === "unauthenticated") return new UnauthenticatedError(fault, options);
  return new ERRORS[fault.code](fault, options);
}

/** The error for a deadline of the client that passed. */
export function deadlineError(): DeadlineError {
  return new DeadlineError(
    makeFault("timeout", "The request was not finished in time.", {
      detail: "client_deadline",
      advice: "Try again with more time; the same operation id continues the same operation.",
      retryable: true,
    }),
  );
}

/** Whether a code of OpenSSL or Node.js means that a certificate is not accepted. */
export function isCertificateError(code: string): boolean {
  return /CERT|SIGNATURE|ISSUER|ALTNAME/.test(code);
}
