/** Publishers on NATS: tool calls as work, and their outcomes. Needs `@nats-io/transport-node`.
 *
 * A publisher has the identity `publisher-<tenant>` of `deploy/nats/accounts.conf`: it reaches its own tenant only, and
 * not the store. Arguments above 64 KiB travel over gRPC, and so do results above it: give `dray` to `connect` to read
 * them.
 */

import { randomUUID } from "node:crypto";

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  connect,
  errors,
  headers as makeHeaders,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  type NodeConnectionOptions,
  type Subscription,
} from "@nats-io/transport-node";

import { argumentsText, resolveOptions } from "./client.js";
import { Deadline } from "./deadline.js";
import {
  DrayageError,
  errorFor,
  faultOf,
  makeFault,
  TooLargeError,
  UnauthenticatedError,
  UnavailableError,
} from "./faults.js";
import { ResolvedArguments, ToolCallOutcome } from "./models.js";
import { bytesOrClaimOf } from "./operation.js";
import { CALL_OPTIONS, checkNestedOptionNames, checkOptionNames, WAIT_OPTIONS } from "./option_names.js";
import { type CallOptions, checkId, checkToolNames, maxAttemptsOf, messageTime, operationIdOf, retryDelayMs, timeoutOf, type WaitOptions } from "./options.js";
import {
  MISSED_OUTCOMES_SETTINGS,
  type MissedOutcomesSettings,
  PUBLISH_SETTINGS,
  PUBLISHER_OPTIONS,
  type PublisherOptions,
  type PublishSettings,
} from "./publisher_settings.js";
import { traceContext } from "./trace.js";
import {
  FaultSchema,
  TerminalState,
  ToolCallOutcomeRequestSchema,
  ToolCallOutcomeSchema,
  type ToolCallRejected,
  ToolCallRejectedSchema,
  ToolCallRequestedSchema,
  type ToolCallResolved,
  ToolCallResolvedSchema,
  WorkDeadLetteredSchema,
} from "./v1/index.js";
import { MAX_INLINE_BYTES } from "./v1/limits.js";

export type { MissedOutcomesSettings, PublisherOptions, PublishSettings };

const WORK_STREAM = "DRAY_WORK";
const EVENT_STREAM = "DRAY_EVENT";
/** Longest time for one acknowledgement of the stream, and for one request for an outcome. */
const REPLY_TIMEOUT_MS = 5_000;
/** Time between two requests for an outcome whose event has not arrived. */
const ASK_INTERVAL_MS = 5_000;
/** Time after the deadline of a call within which a service reports that the call expired. */
const REPORT_GRACE_MS = 5_000;
const RESOLVED_KIND = "dray.v1.ToolCallResolved";
const REJECTED_KIND = "dray.v1.ToolCallRejected";
const DEAD_LETTERED_KIND = "dray.v1.WorkDeadLettered";
const TENANT_PATTERN = /^[a-z0-9_-]{1,64}$/;

/** An event that a call waits for. */
export interface AwaitedEvent {
  /** The message that ends the call. It never arrives after `forget`, or when the connection was closed. */
  readonly message: Promise<Msg>;
  forget(): void;
}

/** The events that end calls of a tenant. One subscription passes each event to the calls that wait for it; with a
 * subscription for each call, every waiting call would receive every event.
 *
 * A call is listed until its event arrives, `forget` is called, or the caller drops what `open` returned. */
export class EndingEvents {
  readonly #connection: NatsConnection;
  readonly #subject: string;
  readonly #waiting = new Map<string, Set<(message: Msg) => void>>();
  readonly #dropped = new FinalizationRegistry<() => void>((forget) => forget());
  #subscription: Subscription | undefined;
  #confirmed: Promise<void> | undefined;

  constructor(connection: NatsConnection, tenant: string) {
    this.#connection = connection;
    this.#subject = `dray.event.toolcall.v1.*.${tenant}`;
  }

  /** Waits for the event that ends an operation, from now on. */
  async open(operationId: string): Promise<AwaitedEvent> {
    await this.#subscribe();
    const listeners = this.#waiting.get(operationId) ?? new Set();
    this.#waiting.set(operationId, listeners);
    let notify = (_message: Msg): void => undefined;
    const message = new Promise<Msg>((resolve) => (notify = resolve));
    listeners.add(notify);
    const forget = (): void => {
      listeners.delete(notify);
      if (listeners.size === 0 && this.#waiting.get(operationId) === listeners) this.#waiting.delete(operationId);
    };
    const event = { message, forget };
    this.#dropped.register(event, forget);
    return event;
  }

  /** Number of operations whose events are awaited. */
  get size(): number {
    return this.#waiting.size;
  }

  async #subscribe(): Promise<void> {
    // Without a message, the connection has failed; a request still finds the outcome.
    const callback = (error: Error | null, message: Msg): void => {
      if (error === null) this.#dispatch(message);
    };
    // The server closes a subscription that it refuses, for instance while permissions change.
    if (this.#subscription?.isClosed()) {
      this.#subscription = undefined;
      this.#confirmed = undefined;
    }
    this.#subscription ??= this.#connection.subscribe(this.#subject, { callback });
    // The server confirms the subscription before a call is published, so that its end is not missed.
    this.#confirmed ??= this.#connection.flush();
    try {
      await this.#confirmed;
    } catch (error) {
      this.#confirmed = undefined;
      throw error;
    }
  }

  #dispatch(message: Msg): void {
    let operationId = "";
    try {
      operationId = endedOperation(message);
    } catch {
      // The event cannot be read and ends no call. An error would end the reader of the connection, without a notice.
    }
    for (const notify of this.#waiting.get(operationId) ?? []) notify(message);
    // A call ends once.
    this.#waiting.delete(operationId);
  }
}

/** The message type of an event; empty for one with a header of a stored message. A service did not publish it: it is the
 * reply to a read that names the subject of events for its reply. */
function kindOf(message: Msg): string {
  if (message.headers?.has("Nats-Stream")) return "";
  const [kind = ""] = (message.headers?.get("Dray-Schema") ?? "").split("/");
  return kind;
}

/** The id of the operation that an event ends; empty if it ends none, or if the id is not known. */
function endedOperation(message: Msg): string {
  switch (kindOf(message)) {
    case RESOLVED_KIND:
    case REJECTED_KIND:
      return message.headers?.get("Dray-Operation") ?? "";
    case DEAD_LETTERED_KIND:
      // The header has a new id if the one of the work could not be read with the rest of its headers.
      return fromBinary(WorkDeadLetteredSchema, message.data).operationId;
    default:
      return "";
  }
}

/** Publishes the tool calls of one tenant. Made by `connect`. */
export class Publisher {
  readonly #connection: NatsConnection;
  readonly #settings: PublisherOptions;
  readonly #options: CallOptions;
  readonly #events: EndingEvents;

  private constructor(connection: NatsConnection, settings: PublisherOptions) {
    this.#connection = connection;
    this.#events = new EndingEvents(connection, settings.tenant);
    this.#settings = settings;
    this.#options = settings.options ?? {};
  }

  /** Connects as the publisher of a tenant, and throws after the attempts and the time of `options`. A connection that is
   * lost later is made again, however long the server is away. */
  static async connect(servers: string | string[], settings: PublisherOptions): Promise<Publisher> {
    checkOptionNames("settings", settings, PUBLISHER_OPTIONS);
    checkOptionNames("options", settings.options ?? {}, CALL_OPTIONS);
    checkNestedOptionNames(settings.options ?? {});
    const { tenant, password } = settings;
    if (!TENANT_PATTERN.test(tenant)) throw new TypeError("a tenant on the bus is 1 to 64 of a-z, 0-9, _ and -");
    const user = settings.user ?? `publisher-${tenant}`;
    const login = password === undefined ? {} : { user, pass: password };
    const connection = await connectWithin(settings.options ?? {}, {
      servers,
      name: user,
      // The shipped permissions let a user receive replies on the inbox with its own name only.
      inboxPrefix: `_INBOX_${user}`,
      // By default the library closes the connection for good after ten attempts, which take 20 seconds.
      maxReconnectAttempts: -1,
      // By default the library closes after two refusals. A server that loads its accounts after its start can cause
      // them.
      ignoreAuthErrorAbort: true,
      ...login,
      ...settings.nats,
    });
    return new Publisher(connection, settings);
  }

  /** Closes the connection. */
  close(): Promise<void> {
    return this.#connection.close();
  }

  /** Publishes a tool call. Returns when the stream has stored it. A repetition with the same operation id is the same
   * work. */
  async publishToolCall(
    tool: string,
    toolArguments: Record<string, unknown> | string,
    settings: PublishSettings = {},
  ): Promise<PublishedWork> {
    checkOptionNames("settings", settings, PUBLISH_SETTINGS);
    checkToolNames(tool, settings.toolCallId);
    const text = argumentsText(toolArguments);
    if (text.byteLength > MAX_INLINE_BYTES) throw tooLarge();
    const operationId =
      settings.operationId === undefined ? operationIdOf(this.#options) : checkId("operationId", settings.operationId);
    const call = create(ToolCallRequestedSchema, {
      toolCallId: settings.toolCallId ?? `call-${operationId}`,
      tool,
      arguments: { body: { case: "inline", value: text } },
      options: resolveOptions(settings),
    });
    const timeoutMs = messageTime("timeoutMs", settings.timeoutMs ?? timeoutOf(this.#options));
    const deadlineMs = Date.now() + timeoutMs;
    const deadline = new Deadline(timeoutMs, this.#options.signal);
    let event: AwaitedEvent | undefined;
    try {
      // The subscription is opened first, so that no event is missed between the acknowledgement and the subscription.
      event = await this.#openEvent(operationId, deadline);
      const headers = await this.#headers("ToolCallRequested", operationId, deadlineMs);
      // The id is the same for every repetition, so that the stream stores the message once.
      headers.set("Nats-Msg-Id", `${operationId}:toolcall.resolve:0`);
      const duplicate = await this.#publish(toBinary(ToolCallRequestedSchema, call), headers, deadline);
      return new PublishedWork(this, operationId, duplicate, deadlineMs + REPORT_GRACE_MS, event);
    } catch (error) {
      event?.forget();
      throw error;
    } finally {
      deadline.end();
    }
  }

  /** The outcome in the ledger, which keeps it for three days. `undefined` before the end, or if no service replies. */
  async askOutcome(operationId: string): Promise<ToolCallOutcome | undefined> {
    checkId("operationId", operationId);
    // The connection is opened again after every loss, so its owner has closed it.
    if (this.#connection.isClosed()) throw new Error("the publisher is closed");
    const request = toBinary(ToolCallOutcomeRequestSchema, create(ToolCallOutcomeRequestSchema, { operationId }));
    const headers = await this.#headers("ToolCallOutcomeRequest", randomUUID(), Date.now() + REPLY_TIMEOUT_MS);
    // The last token is the tenant: the server lets a publisher ask for its own only.
    const subject = `dray.file.v1.outcome.${this.#settings.tenant}`;
    let reply: Msg;
    try {
      reply = await this.#connection.request(subject, request, { timeout: REPLY_TIMEOUT_MS, headers });
    } catch (error) {
      if (isLostReply(error)) return undefined;
      throw error;
    }
    if (reply.headers?.get("Dray-Outcome") !== "ok") throw errorFor(faultOf(fromBinary(FaultSchema, reply.data)));
    const { outcome } = fromBinary(ToolCallOutcomeSchema, reply.data);
    return outcome.value === undefined ? undefined : this.outcomeOf(operationId, outcome.value);
  }

  /** Outcomes since the last call, from the durable consumer that `dray topology apply --publisher` creates. Taking the
   * next outcome acknowledges the one before. Outcomes without an acknowledgement are delivered again: after a loop that
   * was left early, the next call begins with the last outcome. Ends after `waitMs` without an outcome. */
  async *missedOutcomes(settings: MissedOutcomesSettings = {}): AsyncGenerator<ToolCallOutcome> {
    checkOptionNames("settings", settings, MISSED_OUTCOMES_SETTINGS);
    const waitMs = messageTime("waitMs", settings.waitMs ?? 2_000);
    for (;;) {
      // One message is requested at a time, because the server would deliver others again while the caller works on the
      // first ones.
      const message = await this.#nextEvent(waitMs);
      if (message === undefined) return;
      let isTaken = false;
      try {
        const outcome = await this.eventOf(message);
        if (outcome !== undefined) yield outcome;
        isTaken = true;
      } finally {
        // Runs even when the caller leaves its loop. Without it the server waits 30 s for the acknowledgement.
        message.respond(isTaken ? "+ACK" : "-NAK");
        if (!isTaken && !this.#connection.isClosed()) await this.#connection.flush();
      }
    }
  }

  /** The next event of the durable consumer; `undefined` if there is none within `waitMs`. */
  async #nextEvent(waitMs: number): Promise<Msg | undefined> {
    const subject = `$JS.API.CONSUMER.MSG.NEXT.${EVENT_STREAM}.publisher-${this.#settings.tenant}`;
    // The request is a plain message: the client of JetStream first requests information on the consumer, which a
    // publisher may not. Without `expires` the server would wait without end.
    const request = JSON.stringify({ batch: 1, expires: Math.max(1, waitMs) * 1_000_000 });
    // The request has a separate subscription: an event arrives with its own subject, by which the shared subscription
    // of all requests could not find the request.
    const options = { timeout: waitMs + REPLY_TIMEOUT_MS, noMux: true };
    let reply: Msg;
    try {
      reply = await this.#connection.request(subject, request, options);
    } catch (error) {
      if (!isLostReply(error)) throw error;
      throw noConsumer("did not respond", error);
    }
    const status = reply.headers?.code ?? 0;
    if (status === 404 || status === 408) return undefined;
    if (status >= 300) throw noConsumer(`refused: ${reply.headers?.description}`, undefined);
    return reply;
  }

  /** The outcome in an event; `undefined` for an event that ends nothing. */
  async eventOf(message: Msg): Promise<ToolCallOutcome | undefined> {
    const operationId = endedOperation(message);
    if (operationId === "") return undefined;
    switch (kindOf(message)) {
      case RESOLVED_KIND:
        return this.outcomeOf(operationId, fromBinary(ToolCallResolvedSchema, message.data));
      case REJECTED_KIND:
        return this.outcomeOf(operationId, fromBinary(ToolCallRejectedSchema, message.data));
      default: {
        // Work that could not be read: neither the tool nor the id of the call is known.
        const { fault } = fromBinary(WorkDeadLetteredSchema, message.data);
        const rejected = { operationId, state: TerminalState.DEAD_LETTERED, ...(fault === undefined ? {} : { fault }) };
        return this.outcomeOf(operationId, create(ToolCallRejectedSchema, rejected));
      }
    }
  }

  private async outcomeOf(operationId: string, event: ToolCallResolved | ToolCallRejected): Promise<ToolCallOutcome> {
    if (event.$typeName === "dray.v1.ToolCallRejected") {
      return new ToolCallOutcome(operationId, event.toolCallId, event.tool, undefined, event);
    }
    const message = event.resolved;
    if (message?.arguments === undefined) throw new TypeError("the event has no arguments");
    const bytesOrClaim = bytesOrClaimOf(message.arguments);
    const { dray } = this.#settings;
    const content = bytesOrClaim instanceof Uint8Array ? bytesOrClaim : await dray?.readBytes(bytesOrClaim);
    return new ToolCallOutcome(operationId, event.toolCallId, event.tool, new ResolvedArguments(message, content), undefined);
  }

  async #openEvent(operationId: string, deadline: Deadline): Promise<AwaitedEvent> {
    return this.#repeat(deadline, async () => {
      const opening = this.#events.open(operationId);
      try {
        // In an outage, the library confirms a subscription only when it has connected again.
        return await deadline.race(opening);
      } catch (error) {
        opening.then((event) => event.forget()).catch(() => undefined);
        throw error;
      }
    });
  }

  async #publish(data: Uint8Array, headers: MsgHdrs, deadline: Deadline): Promise<boolean> {
    const subject = `dray.work.toolcall.v1.resolve.${this.#settings.tenant}`;
    return this.#repeat(deadline, async () => {
      const reply = await this.#connection.request(subject, data, { timeout: REPLY_TIMEOUT_MS, headers });
      return confirmedDuplicate(reply);
    });
  }

  /** Repeats a step of a publication while its replies are lost. */
  async #repeat<Result>(deadline: Deadline, attemptOnce: () => Promise<Result>): Promise<Result> {
    for (let attempt = 1; ; attempt++) {
      try {
        deadline.remainingMs();
        return await attemptOnce();
      } catch (error) {
        deadline.signal.throwIfAborted();
        if (!isLostReply(error)) throw error;
        // The stream may have stored the message, so the repetition has the same id.
        const delayMs = retryDelayMs(this.#options.retry, attempt, 0);
        if (this.#connection.isClosed() || !deadline.allows(delayMs)) throw unconfirmed(error);
        await deadline.wait(delayMs);
      }
    }
  }

  async #headers(kind: string, operationId: string, deadlineMs: number): Promise<MsgHdrs> {
    const headers = makeHeaders();
    const pairs = {
      "Dray-Schema": `dray.v1.${kind}/1`,
      "Dray-Operation": operationId,
      "Dray-Deadline": String(Math.floor(deadlineMs)),
      "Dray-Tenant": this.#settings.tenant,
      "Content-Type": "application/x-protobuf",
      ...(await traceContext(this.#options)),
    };
    for (const [name, value] of Object.entries(pairs)) headers.set(name, value);
    return headers;
  }
}

/** A tool call that the stream has stored. */
export class PublishedWork {
  readonly #publisher: Publisher;
  readonly #endsAtMs: number;
  readonly #event: AwaitedEvent;

  /** Made by `Publisher.publishToolCall`. */
  constructor(
    publisher: Publisher,
    /** Id that finds the outcome, until three days after the end of the call. */
    readonly operationId: string,
    /** Whether the stream had stored the call before. */
    readonly duplicate: boolean,
    endsAtMs: number,
    event: AwaitedEvent,
  ) {
    this.#publisher = publisher;
    this.#endsAtMs = endsAtMs;
    this.#event = event;
  }

  /** Waits for the event that ends the call. Also requests the outcome every `ASK_INTERVAL_MS`, because the event may
   * have been sent before. */
  async outcome(wait: WaitOptions = {}): Promise<ToolCallOutcome> {
    checkOptionNames("settings", wait, WAIT_OPTIONS);
    const deadline = new Deadline(wait.timeoutMs ?? Math.max(0, this.#endsAtMs - Date.now()), wait.signal);
    const firstEvent = this.#firstEvent();
    firstEvent.catch(() => undefined);
    try {
      for (;;) {
        const known = await this.#knownOutcome();
        if (known !== undefined) return known;
        const delayMs = Math.min(ASK_INTERVAL_MS, deadline.remainingMs());
        const event = await Promise.race([firstEvent, pauseFor(delayMs, deadline)]);
        if (event !== undefined) return event;
        deadline.remainingMs();
      }
    } finally {
      // Also ends the pause that an event was faster than: its timer would keep the process running.
      deadline.cancel();
      this.forget();
    }
  }

  async #knownOutcome(): Promise<ToolCallOutcome | undefined> {
    try {
      return await this.#publisher.askOutcome(this.operationId);
    } catch (error) {
      // The error of a service that is stopping or has lost its store is not an outcome: another replica has the call.
      if (error instanceof DrayageError && error.fault.retryable) return undefined;
      throw error;
    }
  }

  /** Stops listening for the outcome, which can still be requested. */
  forget(): void {
    this.#event.forget();
  }

  async #firstEvent(): Promise<ToolCallOutcome | undefined> {
    return this.#publisher.eventOf(await this.#event.message);
  }
}

async function pauseFor(milliseconds: number, deadline: Deadline): Promise<undefined> {
  if (deadline.allows(milliseconds)) await deadline.wait(milliseconds);
  else await new Promise((_, reject) => deadline.signal.addEventListener("abort", () => reject(deadline.signal.reason)));
  return undefined;
}

/** The error when missed outcomes cannot be requested. */
function noConsumer(reason: string, cause: unknown): UnavailableError {
  const fault = makeFault("unavailable", `The consumer of missed outcomes ${reason}.`, {
    detail: "no_consumer",
    advice: "Check the connection, and that `dray topology apply --publisher TENANT` has created the consumer.",
    retryable: true,
  });
  return new UnavailableError(fault, { cause });
}

/** Reads the acknowledgement of the stream: whether it had stored the message before. */
function confirmedDuplicate(reply: Msg): boolean {
  const confirmed = reply.json<{ stream?: string; duplicate?: boolean; error?: { description?: string; code?: number } }>();
  if (confirmed.error !== undefined) {
    throw new UnavailableError(
      makeFault("unavailable", `The stream refused the tool call: ${confirmed.error.description ?? "no reason"}.`, {
        detail: "stream_refused",
        retryable: confirmed.error.code === 503,
      }),
    );
  }
  if (confirmed.stream !== WORK_STREAM) {
    throw new DrayageError(makeFault("internal", `The stream ${confirmed.stream} took the call instead of ${WORK_STREAM}.`));
  }
  return confirmed.duplicate ?? false;
}

/** Text of the library for a connection that was lost before the server confirmed a subscription. */
const DISCONNECTED = "connection disconnected";

/** Whether a request may have had no responder or a lost reply. */
function isLostReply(error: unknown): boolean {
  return (
    error instanceof errors.TimeoutError ||
    error instanceof errors.NoRespondersError ||
    error instanceof errors.ConnectionError ||
    error instanceof errors.ClosedConnectionError ||
    (error instanceof errors.RequestError && (error.isNoResponders() || error.message === DISCONNECTED))
  );
}

/** Longest time of one attempt to connect: the default of the library. */
const MAX_CONNECT_MS = 20_000;

/** Connects within the attempts and the time of the options. */
async function connectWithin(options: CallOptions, settings: NodeConnectionOptions): Promise<NatsConnection> {
  const deadline = new Deadline(timeoutOf(options), options.signal);
  try {
    for (let attempt = 1; ; attempt++) {
      const timeout = Math.max(1, Math.min(MAX_CONNECT_MS, deadline.remainingMs()));
      const connecting = connect({ timeout, ...settings });
      try {
        return await deadline.race(connecting);
      } catch (failure) {
        // A connection that a caller has left may still be made.
        connecting.then((connection) => connection.close()).catch(() => undefined);
        deadline.signal.throwIfAborted();
        const error = connectError(failure);
        const delayMs = retryDelayMs(options.retry, attempt, 0);
        const isLast = attempt >= maxAttemptsOf(options.retry) || !deadline.allows(delayMs);
        if (!error.fault.retryable || isLast) throw error;
        await deadline.wait(delayMs);
      }
    }
  } finally {
    deadline.end();
  }
}

function connectError(cause: unknown): DrayageError {
  if (cause instanceof errors.AuthorizationError || cause instanceof errors.UserAuthenticationExpiredError) {
    return new UnauthenticatedError(
      makeFault("denied", "The NATS server refuses the user or the password.", {
        detail: "unauthenticated",
        advice: "Check the tenant, the user and the password, and that the server has loaded their account.",
      }),
      { cause },
    );
  }
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new UnavailableError(
    makeFault("unavailable", `The NATS server could not be reached: ${reason}.`, {
      detail: "unavailable",
      advice: "Check the address and that the server runs.",
      retryable: true,
    }),
    { cause },
  );
}

function tooLarge(): TooLargeError {
  return new TooLargeError(
    makeFault("too_large", "The arguments are larger than 64 KiB.", {
      detail: "inline_limit",
      advice: "Publish them over gRPC, with `Dray.publishToolCall`.",
    }),
  );
}

function unconfirmed(cause: unknown): UnavailableError {
  return new UnavailableError(
    makeFault("unavailable", "The stream did not confirm the tool call.", {
      detail: "unconfirmed",
      advice: "Publish it again with the same operation id.",
      retryable: true,
    }),
    { cause },
  );
}
