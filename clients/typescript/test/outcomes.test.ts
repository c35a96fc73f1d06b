/** The outcomes of published calls, over connections that are not real. */

import assert from "node:assert/strict";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { create, toBinary } from "@bufbuild/protobuf";
import { errors, headers, type Msg, type NatsConnection } from "@nats-io/transport-node";

import { EndingEvents, PublishedWork, Publisher } from "../src/bus.js";
import { makeFault } from "../src/faults.js";
import { DeadlineError, DeniedError, type RetryPolicy, UnavailableError } from "../src/index.js";
import { ToolCallOutcome } from "../src/models.js";
import type { CallOptions } from "../src/options.js";
import { FaultCode, TerminalState, WorkDeadLetteredSchema } from "../src/v1/index.js";

const FAST_RETRY: RetryPolicy = { firstDelayMs: 1, maxDelayMs: 10 };

/** Receives the messages of a subscription. */
type Callback = (error: Error | null, message: Msg) => void;

/** A call whose event arrives after the first request for its outcome. These requests fail with `error`. */
function failingWork(error: Error): PublishedWork {
  let hasAsked = (): void => undefined;
  const asked = new Promise<void>((resolve) => (hasAsked = resolve));
  const publisher = {
    askOutcome: () => {
      hasAsked();
      return Promise.reject(error);
    },
    eventOf: () => Promise.resolve(new ToolCallOutcome("o", "call-o", "t", undefined, undefined)),
  };
  const event = { message: asked.then(() => ({}) as Msg), forget: () => undefined };
  return new PublishedWork(publisher as unknown as Publisher, "o", false, Date.now() + 60_000, event);
}

/** A publisher on a connection that confirms subscriptions with `flush`, and publications immediately. No service replies
 * to requests for outcomes. */
function publisherWith(
  flush: () => Promise<void>,
  options: CallOptions,
  onSubscribe: (callback: Callback) => void = () => undefined,
): Publisher {
  const connection = {
    subscribe: (_subject: string, { callback }: { callback: Callback }) => {
      onSubscribe(callback);
      return { isClosed: () => false };
    },
    flush,
    isClosed: () => false,
    request: async (subject: string) => {
      if (!subject.startsWith("dray.work.")) throw new errors.TimeoutError();
      return { json: () => ({ stream: "DRAY_WORK", seq: 1 }) };
    },
  };
  const construct = Publisher as unknown as new (connection: unknown, settings: object) => Publisher;
  return new construct(connection, { tenant: "acme", options });
}

test("a retryable failure does not end the wait for an outcome", async () => {
  const stopping = new UnavailableError(makeFault("unavailable", "Stopping.", { retryable: true }));
  assert.equal((await failingWork(stopping).outcome()).operationId, "o");
});

test("a refusal ends the wait for an outcome", async () => {
  await assert.rejects(failingWork(new DeniedError(makeFault("denied", "No."))).outcome(), DeniedError);
});

test("calls share a subscription and each gets only its own events", async () => {
  const subjects: string[] = [];
  let deliver: Callback = () => undefined;
  let flushes = 0;
  const connection = {
    subscribe: (subject: string, options: { callback: Callback }) => {
      subjects.push(subject);
      deliver = options.callback;
      return { isClosed: () => false };
    },
    flush: async () => {
      if (++flushes === 1) throw new Error("no connection");
    },
  };
  const events = new EndingEvents(connection as unknown as NatsConnection, "acme");
  await assert.rejects(events.open("a"));
  const [first, second, again] = await Promise.all([events.open("a"), events.open("b"), events.open("a")]);
  assert.deepEqual([subjects, flushes, events.size], [["dray.event.toolcall.v1.*.acme"], 2, 2]);
  const send = (operationId: string, kind: string, further = {}): void => {
    const message = { headers: headers() };
    for (const [name, value] of Object.entries<string>(further)) message.headers.set(name, value);
    message.headers.set("Dray-Operation", operationId);
    message.headers.set("Dray-Schema", `dray.v1.${kind}/1`);
    deliver(null, message as Msg);
  };
  send("a", "ToolCallProgress");
  // A stored message that was sent as the reply to a read.
  send("b", "ToolCallResolved", { "Nats-Stream": "KV_dray_tickets" });
  send("unknown", "ToolCallResolved");
  send("a", "ToolCallRejected");
  const ended = await Promise.all([first.message, again.message]);
  assert.deepEqual(ended.map((message) => message.headers?.get("Dray-Schema")), Array(2).fill("dray.v1.ToolCallRejected/1"));
  const silent = Symbol();
  assert.equal(await Promise.race([second.message, Promise.resolve(silent)]), silent);
  for (const event of [first, first, second, again]) event.forget();
  assert.equal(events.size, 0);
});

test("a call that no worker could read ends with the fault of its dead letter", async () => {
  let deliver: Callback = () => undefined;
  const publisher = publisherWith(async () => undefined, {}, (callback) => (deliver = callback));
  const work = await publisher.publishToolCall("t", {}, { operationId: "o" });
  const fault = { code: FaultCode.INVALID_ARGUMENT, message: "The message cannot be read." };
  const data = toBinary(WorkDeadLetteredSchema, create(WorkDeadLetteredSchema, { operationId: "o", fault }));
  const message = { headers: headers(), data };
  message.headers.set("Dray-Schema", "dray.v1.WorkDeadLettered/1");
  // The service gives the event a new id if it cannot read that of the work.
  message.headers.set("Dray-Operation", "new");
  // An error in the callback would end the reader of the connection.
  deliver(null, { ...message, data: Uint8Array.of(0xff) } as Msg);
  deliver(null, message as Msg);
  const { operationId, rejected, toolMessage } = await work.outcome();
  assert.deepEqual([operationId, rejected?.state, toolMessage], ["o", TerminalState.DEAD_LETTERED, fault.message]);
});

test("an outcome that has arrived leaves no timer that keeps the process running", async () => {
  const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  await failingWork(new UnavailableError(makeFault("unavailable", "Stopping.", { retryable: true }))).outcome();
  assert.equal(timers(), before);
});

test("a call whose outcome is not awaited leaves nothing behind", async () => {
  let deliver: Callback = () => undefined;
  const connection = {
    subscribe: (_subject: string, options: { callback: Callback }) => {
      deliver = options.callback;
      return { isClosed: () => false };
    },
    flush: async () => undefined,
  };
  const events = new EndingEvents(connection as unknown as NatsConnection, "acme");
  const ended = await events.open("ended");
  const message = { headers: headers() };
  message.headers.set("Dray-Operation", "ended");
  message.headers.set("Dray-Schema", "dray.v1.ToolCallResolved/1");
  deliver(null, message as Msg);
  assert.equal(await ended.message, message);
  assert.equal(events.size, 0);
  // The events of these calls never arrive, and their owner drops them.
  for (let number = 0; number < 10; number++) await events.open(`dropped-${number}`);
  assert.equal(events.size, 10);
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  for (let round = 0; round < 1_000 && events.size > 0; round++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(events.size, 0);
});

test("a publication in an outage ends at its deadline or with its signal", async () => {
  const unanswered = publisherWith(() => new Promise(() => undefined), { timeoutMs: 100 });
  await assert.rejects(unanswered.publishToolCall("t", {}), DeadlineError);
  const controller = new AbortController();
  const flushing = () => {
    setImmediate(() => controller.abort(new Error("the user left")));
    return new Promise<void>(() => undefined);
  };
  const left = publisherWith(flushing, { timeoutMs: 600_000, signal: controller.signal });
  await assert.rejects(left.publishToolCall("t", {}), /the user left/);
});

test("connecting to a server that is silent ends with the signal", { timeout: 10_000 }, async (t) => {
  const controller = new AbortController();
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    controller.abort(new Error("the user left"));
  });
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `nats://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const connecting = Publisher.connect(address, { tenant: "acme", options: { signal: controller.signal } });
  await assert.rejects(connecting, /the user left/);
});

test("a subscription that an outage interrupts is confirmed later", async () => {
  let flushes = 0;
  const flush = async (): Promise<void> => {
    if (++flushes < 3) throw new errors.RequestError("connection disconnected");
  };
  const publisher = publisherWith(flush, { timeoutMs: 60_000, retry: FAST_RETRY });
  assert.equal((await publisher.publishToolCall("t", {})).duplicate, false);
  assert.equal(flushes, 3);
});

test("a subscription that the server closed is opened again", async () => {
  const closed: boolean[] = [];
  let flushes = 0;
  const connection = {
    subscribe: () => {
      const index = closed.push(false) - 1;
      return { isClosed: () => closed[index] };
    },
    flush: async () => void flushes++,
  };
  const events = new EndingEvents(connection as unknown as NatsConnection, "acme");
  await events.open("a");
  await events.open("a");
  assert.deepEqual([closed.length, flushes], [1, 1]);
  closed[0] = true;
  await events.open("a");
  await events.open("a");
  assert.deepEqual([closed.length, flushes], [2, 2]);
});
