/** The publisher of a tenant on a real server with the shipped accounts.
 *
 * The variable DRAYAGE_SCENARIO is JSON: servers, tenant, password, note (a reference that resolves to `Grüße`) and large
 * (one that resolves to more than a message holds).
 */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";

import { Dray, DrayageError, InvalidParameterError, TooLargeError, UnauthenticatedError, UnavailableError } from "@drayage/client";
import { Publisher } from "@drayage/client/bus";

const SCENARIO = JSON.parse(process.env.DRAYAGE_SCENARIO ?? "{}") as Record<string, string>;
const { servers = "", tenant = "", password = "", note = "", large = "" } = SCENARIO;

/** A client that reads every claim as the same arguments. */
class FakeDray extends Dray {
  override async readBytes(): Promise<Uint8Array> {
    return Buffer.from('{"f": "read from the store"}');
  }
}

async function connect(t: TestContext, dray?: Dray): Promise<Publisher> {
  const options = { timeoutMs: 60_000 };
  const publisher = await Publisher.connect(servers, { tenant, password, options, ...(dray && { dray }) });
  t.after(() => publisher.close());
  return publisher;
}

test("a tool call is published once and its outcome is found later", async (t) => {
  const publisher = await connect(t);
  const operationId = "typescript-bus-1";
  const work = await publisher.publishToolCall("t", { note }, { operationId });
  assert.deepEqual((await work.outcome()).arguments(), { note: "Grüße" });
  const again = await publisher.publishToolCall("t", { note }, { operationId });
  assert.deepEqual([work.duplicate, again.duplicate], [false, true]);
  assert.deepEqual((await again.outcome()).arguments(), { note: "Grüße" });
  assert.deepEqual((await publisher.askOutcome(operationId))?.arguments(), { note: "Grüße" });
  assert.equal(await publisher.askOutcome("typescript-bus-unknown"), undefined);
  const rejected = await (await publisher.publishToolCall("t", { note: "file:text::files/b/none.txt" })).outcome();
  assert.throws(() => rejected.arguments(), InvalidParameterError);
});

test("a result that is larger than a message is read with a client of the store", async (t) => {
  const reader = await connect(t, new FakeDray("127.0.0.1:1", { plaintext: true }));
  const read = await (await reader.publishToolCall("t", { f: large })).outcome();
  assert.deepEqual(read.arguments(), { f: "read from the store" });
  const publisher = await connect(t);
  const outcome = await (await publisher.publishToolCall("t", { f: large })).outcome();
  assert.equal(outcome.resolved?.message.arguments?.body.case, "claim");
  assert.throws(() => outcome.arguments(), (error) => error instanceof DrayageError && error.fault.advice !== "");
  await assert.rejects(publisher.publishToolCall("t", { text: "x".repeat(70_000) }), TooLargeError);
  // With such timeouts the deadlines would not be numbers, and the calls would become dead letters.
  for (const timeoutMs of [Infinity, NaN, 1e300, -1]) {
    await assert.rejects(publisher.publishToolCall("t", {}, { timeoutMs }), /`timeoutMs`/);
  }
});

test("missed outcomes are returned once", async (t) => {
  const publisher = await connect(t);
  const works = await Promise.all([0, 1, 2].map((n) => publisher.publishToolCall("t", { n })));
  await Promise.all(works.map((work) => work.outcome()));
  const missed = new Set<string>();
  for await (const outcome of publisher.missedOutcomes()) missed.add(outcome.operationId);
  for (const { operationId } of works) assert.ok(missed.has(operationId));
  for await (const outcome of publisher.missedOutcomes({ waitMs: 500 })) assert.fail(outcome.operationId);
});

test("a loop over missed outcomes that is left early loses none and delays none", async (t) => {
  const publisher = await connect(t);
  const works = await Promise.all([3, 4, 5].map((n) => publisher.publishToolCall("t", { n })));
  await Promise.all(works.map((work) => work.outcome()));
  const taken: string[] = [];
  for await (const outcome of publisher.missedOutcomes()) {
    taken.push(outcome.operationId);
    if (taken.length === 2) break;
  }
  // The first outcome was acknowledged by taking the second, which comes again with the third.
  const again: string[] = [];
  for await (const outcome of publisher.missedOutcomes({ waitMs: 500 })) again.push(outcome.operationId);
  const [first, second] = taken;
  assert.ok(second !== undefined && again.includes(second), `${again}`);
  assert.ok(!again.includes(`${first}`), `${again}`);
  assert.deepEqual(new Set([...taken, ...again]), new Set(works.map(({ operationId }) => operationId)));
  await assert.rejects(publisher.missedOutcomes({ waitMs: Infinity }).next(), /`waitMs`/);
});

test("a wrong password is refused", async () => {
  await assert.rejects(Publisher.connect(servers, { tenant, password: "wrong" }), UnauthenticatedError);
});

test("a server that is away is reported after the attempts", async () => {
  const options = { retry: { maxAttempts: 3, firstDelayMs: 1 } };
  const connecting = Publisher.connect("nats://127.0.0.1:1", { tenant, password, options });
  await assert.rejects(connecting, (error) => error instanceof UnavailableError && error.fault.retryable);
});

test("a closed publisher ends the wait for an outcome", async (t) => {
  const publisher = await connect(t);
  await publisher.close();
  await assert.rejects(publisher.askOutcome("scenario-closed"), /the publisher is closed/);
});
