/** What requests contain: ids, times and arguments. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";

import type { ConnectRouter } from "@connectrpc/connect";

import { Publisher } from "../src/bus.js";
import { Dray } from "../src/index.js";
import { Deliveries, Egress, Files, Reading, Sandboxes, Tickets } from "../src/v1/index.js";
import { FakeEndpoint, FakeStore } from "./fakes.js";

/** The claim that every upload gets. */
const CLAIM = { store: "k", artifact: { name: "stored.csv", sha256: new Uint8Array(32) } };

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

test("a small fetched file is used like a large one", async (t) => {
  const stored: [string, string][] = [];
  const uploads: string[] = [];
  const used: unknown[] = [];
  const operationIds: (string | null)[] = [];
  const store = await FakeStore.start((_number, request, response) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      uploads.push(Buffer.concat(parts).toString());
      response.end();
    });
  });
  t.after(() => store.stop());
  const dray = await connected(t, (router) => {
    router.service(Egress, {
      fetch: () => ({ name: "a.csv", mediaType: "text/csv", content: { body: { case: "inline", value: Buffer.from("a,b\n1") } } }),
    });
    router.service(Deliveries, {
      prepareUpload: ({ name, mediaType }, { requestHeader }) => {
        operationIds.push(requestHeader.get("dray-operation"));
        stored.push([name, mediaType]);
        return { uploadId: "u", url: { url: store.url } };
      },
      finishUpload: () => ({ claim: CLAIM }),
      sendFile: ({ claims }) => {
        used.push(claims.map((claim) => claim.store));
        return { deliveryId: "d" };
      },
    });
    router.service(Sandboxes, {
      put: ({ claim }) => {
        used.push(claim?.store);
        return {};
      },
      exec: ({ input }) => {
        used.push(Buffer.from(input).toString());
        return {};
      },
    });
    router.service(Tickets, {
      issue: ({ name, sha256 }) => {
        used.push([name, sha256.byteLength]);
        return {};
      },
    });
    router.service(Reading, {
      readAttachment: ({ source, name }) => {
        used.push([source?.source.case, name]);
        return { output: { body: { case: "inline", value: new Uint8Array() } } };
      },
    });
    router.service(Files, {
      resolve: ({ arguments: content }) => ({ outcome: { case: "resolved", value: { arguments: content ?? {} } } }),
    });
  });
  const fetched = await dray.fetch("http://a/");
  const box = dray.sandbox("docker:web");
  await box.put(fetched);
  await box.put(fetched, { name: "other.csv" });
  await dray.send("s", { files: [fetched] });
  await box.exec(["wc"], { stdin: fetched });
  await dray.downloadTicket("s", fetched);
  await dray.read(fetched);
  await dray.read(fetched, { name: "b.csv" });
  const resolved = await dray.resolve({ n: 1 });
  await dray.withOptions({ operationId: "x".repeat(128) }).sandbox("docker:web").put(resolved);
  await dray.read(resolved);
  assert.equal(Buffer.from(await dray.readBytes(resolved)).toString(), '{"n":1}');
  const csv = ["a.csv", "text/csv"];
  const json = ["arguments.json", "application/json"];
  assert.deepEqual(stored, [csv, ["other.csv", "text/csv"], csv, csv, json]);
  assert.deepEqual(uploads, [...Array(4).fill("a,b\n1"), '{"n":1}']);
  assert.deepEqual(used, [
    "k",
    "k",
    ["k"],
    "a,b\n1",
    ["stored.csv", 32],
    ["inline", "a.csv"],
    ["inline", "b.csv"],
    "k",
    ["inline", "arguments.json"],
  ]);
  // The id of a request that prepares another one is not longer than an id may be.
  assert.match(operationIds.at(-1) ?? "", /^1-[0-9a-f]{64}$/);
});
