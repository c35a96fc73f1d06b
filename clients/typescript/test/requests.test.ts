/** What requests contain: ids, times and arguments. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";

import type { ConnectRouter } from "@connectrpc/connect";

import { Publisher } from "../src/bus.js";
import { Dray } from "../src/index.js";
import { Sandboxes, Tickets } from "../src/v1/index.js";
import { FakeEndpoint } from "./fakes.js";

async function connected(t: TestContext, routes: (router: ConnectRouter) => void): Promise<Dray> {
  const endpoint = await FakeEndpoint.serve(routes);
  const dray = new Dray(endpoint.target, { tenant: "acme", plaintext: true, retry: { firstDelayMs: 1, maxDelayMs: 10 } });
  t.after(() => {
    dray.close();
    endpoint.stop();
  });
  return dray;
}

/** A publisher whose connection records the ids of publications. */
function recordingPublisher(operationId?: string): { publisher: Publisher; published: (string | undefined)[] } {
  const published: (string | undefined)[] = [];
  const connection = {
    subscribe: () => ({ isClosed: () => false }),
    flush: async () => undefined,
    isClosed: () => false,
    request: async (_subject: string, _data: Uint8Array, { headers }: { headers: Map<string, string> }) => {
      published.push(headers.get("Dray-Operation"));
      return { json: () => ({ stream: "DRAY_WORK", seq: 1 }) };
    },
  };
  const construct = Publisher as unknown as new (connection: unknown, settings: object) => Publisher;
  const options = operationId === undefined ? {} : { operationId };
  return { publisher: new construct(connection, { tenant: "acme", options }), published };
}

test("an operation id that the services refuse is refused before anything is sent", async (t) => {
  const dray = await connected(t, () => undefined);
  const { publisher, published } = recordingPublisher();
  for (const operationId of ["", "order 17", "bestellung-ü", "a\n", "x".repeat(129), null, 17] as string[]) {
    const message = /^`operationId` must be /;
    const refused = { name: "TypeError", message };
    await assert.rejects(publisher.publishToolCall("t", {}, { operationId }), refused);
    await assert.rejects(recordingPublisher(operationId).publisher.publishToolCall("t", {}), refused);
    await assert.rejects(publisher.askOutcome(operationId), refused);
    await assert.rejects(dray.withOptions({ operationId }).fetch("http://a/"), refused);
    assert.throws(() => dray.toolCall(operationId), refused);
    assert.throws(() => dray.delivery(operationId), /^TypeError: `deliveryId` must be /);
    await assert.rejects(dray.withOptions({ session: operationId }).fetch("http://a/"), /^TypeError: `session` must be /);
    assert.throws(() => new Dray("127.0.0.1:1", { tenant: operationId }), /^TypeError: `tenant` must be /);
  }
  const longest = "~".repeat(128);
  for (const operationId of ["a", longest]) await publisher.publishToolCall("t", {}, { operationId });
  await publisher.publishToolCall("t", {});
  assert.deepEqual([published.length, published[0], published[1]], [3, "a", longest]);
});

test("a positive time never becomes the longest one", async (t) => {
  const lifetimes: number[] = [];
  const timeouts: bigint[] = [];
  const dray = await connected(t, (router) => {
    router.service(Tickets, {
      issue: ({ lifetimeS }) => {
        lifetimes.push(lifetimeS);
        return {};
      },
    });
    router.service(Sandboxes, {
      exec: ({ timeoutMs }) => {
        timeouts.push(timeoutMs);
        return {};
      },
    });
  });
  for (const seconds of [0, 0.4, 1, 59.9]) {
    await dray.uploadTicket("s", { lifetimeSeconds: seconds });
    await dray.downloadTicket("s", "f", { lifetimeSeconds: seconds });
    await dray.sandbox("docker:web").exec(["true"], { timeoutMs: seconds });
  }
  assert.deepEqual(lifetimes, [0, 0, 1, 1, 1, 1, 60, 60]);
  assert.deepEqual(timeouts, [0n, 1n, 1n, 60n]);
});

test("arguments that are not JSON are refused instead of changed", async (t) => {
  const dray = await connected(t, () => undefined);
  const { publisher } = recordingPublisher();
  for (const [value, found] of [[NaN, "NaN"], [-Infinity, "-Infinity"], [new Map([[1, 2]]), "a Map"], [new Set([1]), "a Set"]] as const) {
    const refused = { name: "TypeError", message: `\`toolArguments\` has a value that JSON cannot express: \`price\` is ${found}` };
    for (const toolArguments of [{ price: value }, { items: [{ price: value }] }]) {
      await assert.rejects(dray.resolve(toolArguments), refused);
      await assert.rejects(dray.publishToolCall("t", toolArguments), refused);
      await assert.rejects(publisher.publishToolCall("t", toolArguments), refused);
    }
  }
  await publisher.publishToolCall("t", { when: new Date(0), absent: undefined, list: [1, "a", null] });
});
