/** Publishers on NATS: tool calls as work, and their outcomes. Needs `@nats-io/transport-node`.
 *
 * A publisher has the identity `publisher-<tenant>` of `deploy/nats/accounts.conf`: it reaches its own tenant only, and not
 * the store. Arguments above 64 KiB travel over gRPC, and so do results above it: give `dray` to `connect` to read them.
 */

import { randomUUID } from "node:crypto";

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  connect,
  createInbox,
  errors,
  headers as makeHeaders,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  type NodeConnectionOptions,
  type Subscription,
} from "@nats-io/transport-node";

import { argumentsText, type Dray, resolveOptions, type ResolveSettings } from "./client.js";
import { Deadline } from "./deadline.js";
import { DrayageError, errorFor, faultOf, makeFault, TooLargeError, UnavailableError } from "./faults.js";
import { ResolvedArguments, ToolCallOutcome } from "./models.js";
import { INLINE_LIMIT_BYTES, placeOf } from "./operation.js";
import { type CallOptions, operationIdOf, retryDelayMs, timeoutOf, type WaitOptions } from "./options.js";
import { traceContext } from "./trace.js";
import {
  FaultSchema,
  ToolCallOutcomeRequestSchema,
  ToolCallOutcomeSchema,
  type ToolCallRejected,
  ToolCallRejectedSchema,
  ToolCallRequestedSchema,
  type ToolCallResolved,
  ToolCallResolvedSchema,
} from "./v1/index.js";

const WORK_STREAM = "DRAY_WORK";
const EVENT_STREAM = "DRAY_EVENT";
/** Longest time for one acknowledgement of the stream, and for one question. */
const REPLY_TIMEOUT_MS = 5_000;
/** Time between two questions for an outcome whose event did not come. */
const ASK_INTERVAL_MS = 5_000;
/** Time after the deadline of a call in which its end as expired is reported. */
const REPORT_GRACE_MS = 5_000;
/** Most outcomes that the durable consumer gives at a time. */
const BATCH_MESSAGES = 64;
const RESOLVED_KIND = "dray.v1.ToolCallResolved";
const REJECTED_KIND = "dray.v1.ToolCallRejected";
const ENDING_KINDS = new Set([RESOLVED_KIND, REJECTED_KIND]);
const TENANT_PATTERN = /^[a-z0-9_-]{1,64}$/;

/** Who publishes, and how. */
export interface PublisherOptions {
  readonly tenant: string;
  /** User of the server; `publisher-<tenant>` when unset. */
  readonly user?: string;
  readonly password?: string;
  /** Timeout, retries and trace context. */
  readonly options?: CallOptions;
  /** A client of the same tenant, which reads results that are larger than a message. */
  readonly dray?: Dray;
  /** For the connection: `tls`, `authenticator` … */
  readonly nats?: NodeConnectionOptions;
}

/** What one tool call says besides its arguments. */
export interface PublishSettings extends ResolveSettings {
  readonly toolCallId?: string;
  /** The same id is the same work. */
  readonly operationId?: string;
  /** Milliseconds until the call ends as expired. */
  readonly timeoutMs?: number;
}

/** An event that a call waits for. */
export interface AwaitedEvent {
  /** The message that ends the call. It never comes after `forget`, or when the connection was closed. */
  readonly message: Promise<Msg>;
  forget(): void;
}

/** The events that end calls of a tenant: one subscription, whose messages go to the calls that wait for them. One for each
 * call would bring every event to every waiting call. */
export class EndingEvents {
  readonly #connection: NatsConnection;
  readonly #subject: string;
  readonly #waiting = new Map<string, Set<(message: Msg) => void>>();
  #subscription: Subscription | undefined;
  #confirmed: Promise<void> | undefined;

  constructor(connection: NatsConnection, tenant: string) {
    this.#connection = connection;
    this.#subject = `dray.event.toolcall.v1.*.${tenant}`;
  }

  /** Waits for the event that ends an operation, from now on. */
  async open(operationId: string): Promise<AwaitedEvent> {
    await this.#subscribe();
    const takers = this.#waiting.get(operationId) ?? new Set();
    this.#waiting.set(operationId, takers);
    let take = (_message: Msg): void => undefined;
    const message = new Promise<Msg>((resolve) => (take = resolve));
    takers.add(take);
    const forget = (): void => {
      takers.delete(take);
      if (takers.size === 0 && this.#waiting.get(operationId) === takers) this.#waiting.delete(operationId);
    };
    return { message, forget };
  }

  /** How many operations are waited for. */
  get size(): number {
    return this.#waiting.size;
  }

  async #subscribe(): Promise<void> {
    // Without a message, the connection has a problem of its own; a question still finds the outcome.
    const callback = (error: Error | null, message: Msg): void => {
      if (error === null) this.#handOver(message);
    };
    // The server closes a subscription that it refuses, for instance while permissions change.
    if (this.#subscription?.isClosed()) {
      this.#subscription = undefined;
      this.#confirmed = undefined;
    }
    this.#subscription ??= this.#connection.subscribe(this.#subject, { callback });
    // The server has the subscription before a call can end.
    this.#confirmed ??= this.#connection.flush();
    try {
      await this.#confirmed;
    } catch (error) {
      this.#confirmed = undefined;
      throw error;
    }
  }

  #handOver(message: Msg): void {
    const [kind = ""] = (message.headers?.get("Dray-Schema") ?? "").split("/");
    if (!ENDING_KINDS.has(kind)) return;
    const operationId = message.headers?.get("Dray-Operation") ?? "";
    for (const take of this.#waiting.get(operationId) ?? []) take(message);
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

  /** Connects as the publisher of a tenant. */
  static async connect(servers: string | string[], settings: PublisherOptions): Promise<Publisher> {
    const { tenant, password } = settings;
    if (!TENANT_PATTERN.test(tenant)) throw new TypeError("a tenant on the bus is 1 to 64 of a-z, 0-9, _ and -");
    const user = settings.user ?? `publisher-${tenant}`;
    const login = password === undefined ? {} : { user, pass: password };
    // The shipped permissions let a user receive replies on the inbox with its own name only.
    const connection = await connect({ servers, name: user, inboxPrefix: `_INBOX_${user}`, ...login, ...settings.nats });
    return new Publisher(connection, settings);
  }

  /** Closes the connection. */
  close(): Promise<void> {
    return this.#connection.close();
  }

  /** Publishes a tool call; returns when the stream has it. A repetition with the same operation id is the same work. */
  async publishToolCall(
    tool: string,
    toolArguments: Record<string, unknown> | string,
    settings: PublishSettings = {},
  ): Promise<PublishedWork> {
    const text = argumentsText(toolArguments);
    if (text.byteLength > INLINE_LIMIT_BYTES) throw tooLarge();
    const operationId = settings.operationId ?? operationIdOf(this.#options);
    const call = create(ToolCallRequestedSchema, {
      toolCallId: settings.toolCallId ?? `call-${operationId}`,
      tool,
      arguments: { body: { case: "inline", value: text } },
      options: resolveOptions(settings),
    });
    const timeoutMs = settings.timeoutMs ?? timeoutOf(this.#options);
    const deadlineMs = Date.now() + timeoutMs;
    const deadline = new Deadline(timeoutMs, this.#options.signal);
    // First, so that no event is missed between the acknowledgement and the subscription.
    const event = await this.#events.open(operationId);
    try {
      const headers = await this.#headers("ToolCallRequested", operationId, deadlineMs);
      // The same for every repetition, so the stream takes it once.
      headers.set("Nats-Msg-Id", `${operationId}:toolcall.resolve:0`);
      const duplicate = await this.#publish(toBinary(ToolCallRequestedSchema, call), headers, deadline);
      return new PublishedWork(this, operationId, duplicate, deadlineMs + REPORT_GRACE_MS, event);
    } catch (error) {
      event.forget();
      throw error;
    } finally {
      deadline.end();
    }
  }

  /** The outcome as the ledger has it, for three days; `undefined` while there is none, or no service answers. */
  async askOutcome(operationId: string): Promise<ToolCallOutcome | undefined> {
    const request = toBinary(ToolCallOutcomeRequestSchema, create(ToolCallOutcomeRequestSchema, { operationId }));
    const headers = await this.#headers("ToolCallOutcomeRequest", randomUUID(), Date.now() + REPLY_TIMEOUT_MS);
    // The last token is the tenant: the server lets a publisher ask for its own only.
    const subject = `dray.file.v1.outcome.${this.#settings.tenant}`;
    let reply: Msg;
    try {
      reply = await this.#connection.request(subject, request, { timeout: REPLY_TIMEOUT_MS, headers });
    } catch (error) {
      if (isLost(error)) return undefined;
      throw error;
    }
    if (reply.headers?.get("Dray-Outcome") !== "ok") throw errorFor(faultOf(fromBinary(FaultSchema, reply.data)));
    const { outcome } = fromBinary(ToolCallOutcomeSchema, reply.data);
    return outcome.value === undefined ? undefined : this.outcomeOf(operationId, outcome.value);
  }

  /** Outcomes since the last time, from the durable consumer that `dray topology apply --publisher` makes. An outcome is
   * acknowledged when the next one is asked for; one that was not comes again. Ends after `waitMs` without one. */
  async *missedOutcomes(settings: { waitMs?: number } = {}): AsyncGenerator<ToolCallOutcome> {
    const waitMs = settings.waitMs ?? 2_000;
    const subject = `$JS.API.CONSUMER.MSG.NEXT.${EVENT_STREAM}.publisher-${this.#settings.tenant}`;
    // As a message of its own: the client of JetStream asks what the consumer is first, which a publisher may not.
    const request = JSON.stringify({ batch: BATCH_MESSAGES, expires: waitMs * 1_000_000 });
    for (;;) {
      const reply = createInbox(`_INBOX_${this.#settings.user ?? `publisher-${this.#settings.tenant}`}`);
      const messages = this.#connection.subscribe(reply, { max: BATCH_MESSAGES, timeout: waitMs + REPLY_TIMEOUT_MS });
      this.#connection.publish(subject, request, { reply });
      let count = 0;
      try {
        for await (const message of messages) {
          // A status (404, 408, 409): there is no further message for this request.
          if (message.headers !== undefined && message.headers.code >= 300) break;
          count++;
          const outcome = await this.eventOf(message);
          if (outcome !== undefined) yield outcome;
          message.respond("+ACK");
        }
      } catch (error) {
        if (!(error instanceof errors.TimeoutError)) throw error;
      } finally {
        messages.unsubscribe();
      }
      if (count < BATCH_MESSAGES) return;
    }
  }

  /** The outcome in an event; `undefined` for an event that ends nothing. */
  async eventOf(message: Msg): Promise<ToolCallOutcome | undefined> {
    const [kind] = (message.headers?.get("Dray-Schema") ?? "").split("/");
    const operationId = message.headers?.get("Dray-Operation") ?? "";
    if (kind === RESOLVED_KIND) {
      return this.outcomeOf(operationId, fromBinary(ToolCallResolvedSchema, message.data));
    }
    if (kind === REJECTED_KIND) {
      return this.outcomeOf(operationId, fromBinary(ToolCallRejectedSchema, message.data));
    }
    return undefined;
  }

  private async outcomeOf(operationId: string, event: ToolCallResolved | ToolCallRejected): Promise<ToolCallOutcome> {
    if (event.$typeName === "dray.v1.ToolCallRejected") {
      return new ToolCallOutcome(operationId, event.toolCallId, event.tool, undefined, event);
    }
    const message = event.resolved;
    if (message?.arguments === undefined) throw new TypeError("the event has no arguments");
    const place = placeOf(message.arguments);
    const { dray } = this.#settings;
    const content = place instanceof Uint8Array ? place : await dray?.readBytes(place);
    return new ToolCallOutcome(operationId, event.toolCallId, event.tool, new ResolvedArguments(message, content), undefined);
  }

  async #publish(data: Uint8Array, headers: MsgHdrs, deadline: Deadline): Promise<boolean> {
    const subject = `dray.work.toolcall.v1.resolve.${this.#settings.tenant}`;
    for (let attempt = 1; ; attempt++) {
      try {
        deadline.remainingMs();
        const reply = await this.#connection.request(subject, data, { timeout: REPLY_TIMEOUT_MS, headers });
        return confirmedDuplicate(reply);
      } catch (error) {
        deadline.signal.throwIfAborted();
        if (!isLost(error)) throw error;
        // The stream may have it: the repetition has the same id.
        const delayMs = retryDelayMs(this.#options.retry, attempt, 0);
        if (!deadline.allows(delayMs)) throw unconfirmed(error);
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

/** A tool call that the stream has. */
export class PublishedWork {
  readonly #publisher: Publisher;
  readonly #endsAtMs: number;
  readonly #event: AwaitedEvent;

  /** Made by `Publisher.publishToolCall`. */
  constructor(
    publisher: Publisher,
    /** Id to ask for the outcome, for three days after its end. */
    readonly operationId: string,
    /** Whether the stream had it already. */
    readonly duplicate: boolean,
    endsAtMs: number,
    event: AwaitedEvent,
  ) {
    this.#publisher = publisher;
    this.#endsAtMs = endsAtMs;
    this.#event = event;
  }

  /** Waits for its end: for the event, and now and then asks, since the event may have come before. */
  async outcome(wait: WaitOptions = {}): Promise<ToolCallOutcome> {
    const deadline = new Deadline(wait.timeoutMs ?? Math.max(0, this.#endsAtMs - Date.now()), wait.signal);
    const found = this.#firstEvent();
    found.catch(() => undefined);
    try {
      for (;;) {
        const asked = await this.#askAgainLater();
        if (asked !== undefined) return asked;
        const pause = Math.min(ASK_INTERVAL_MS, deadline.remainingMs());
        const event = await Promise.race([found, pauseFor(pause, deadline)]);
        if (event !== undefined) return event;
        deadline.remainingMs();
      }
    } finally {
      deadline.end();
      this.forget();
    }
  }

  async #askAgainLater(): Promise<ToolCallOutcome | undefined> {
    try {
      return await this.#publisher.askOutcome(this.operationId);
    } catch (error) {
      // A service that is stopping, or has lost its store, says nothing about the call: another replica has it.
      if (error instanceof DrayageError && error.fault.retryable) return undefined;
      throw error;
    }
  }

  /** Stops listening for the outcome, which can still be asked for. */
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

/** What the stream says about a message: whether it had it. */
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

/** Whether a request may have had no responder or a lost reply. */
function isLost(error: unknown): boolean {
  return (
    error instanceof errors.TimeoutError ||
    error instanceof errors.NoRespondersError ||
    error instanceof errors.ConnectionError ||
    (error instanceof errors.RequestError && error.isNoResponders())
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
