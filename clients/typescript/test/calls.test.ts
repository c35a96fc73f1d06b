/** Requests against endpoints that misbehave: retries, deadlines, faults, metadata. */

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { getEventListeners } from "node:events";
import { type TestContext, test } from "node:test";

import { Code, ConnectError, type HandlerContext } from "@connectrpc/connect";
import { type Context, context, type ContextManager, ROOT_CONTEXT, trace } from "@opentelemetry/api";

import { Publisher } from "../src/bus.js";
import { makeFault } from "../src/faults.js";
import {
  DeadlineError,
  DeniedError,
  Dray,
  NotFoundError,
  type RetryPolicy,
  UnauthenticatedError,
  UnavailableError,
} from "../src/index.js";
import { lasts, retryDelayMs } from "../src/options.js";
import { FaultCode, Files } from "../src/v1/index.js";
import { FakeEndpoint, type FetchHandler, refusal } from "./fakes.js";

const FAST_RETRY: RetryPolicy = { firstDelayMs: 1, maxDelayMs: 10 };

/** A response that is never sent. It ends with the request, so that its timer does not keep the process running. */
function hang({ signal }: HandlerContext): Promise<never> {
  return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

async function connected(t: TestContext, handle: FetchHandler): Promise<{ endpoint: FakeEndpoint; dray: Dray }> {
  const endpoint = await FakeEndpoint.start(handle);
  const dray = new Dray(endpoint.target, { tenant: "acme", plaintext: true, retry: FAST_RETRY });
  t.after(() => {
    dray.close();
    endpoint.stop();
  });
  return { endpoint, dray };
}

test("a request with a retryable fault is repeated with the same operation id", async (t) => {
  const { endpoint, dray } = await connected(t, (number, url) => {
    if (number < 3) {
      const fault = { code: FaultCode.RATE_LIMITED, message: "Busy.", retryable: true, retryAfterMs: 1n };
      throw refusal(Code.ResourceExhausted, fault);
    }
    return { name: url };
  });
  assert.equal((await dray.fetch("http://a/")).name, "http://a/");
  assert.equal(endpoint.seen.length, 3);
  assert.equal(new Set(endpoint.seen.map((header) => header.get("dray-operation"))).size, 1);
  assert.equal(endpoint.seen[0]?.get("dray-tenant"), "acme");
});

test("a final fault is not repeated and keeps its advice", async (t) => {
  const { endpoint, dray } = await connected(t, () => {
    const texts = { detail: "ssrf_blocked", message: "No.", advice: "Use another.", traceId: "t" };
    throw refusal(Code.PermissionDenied, { code: FaultCode.DENIED, ...texts });
  });
  await assert.rejects(dray.fetch("http://a/"), (error) => {
    assert.ok(error instanceof DeniedError);
    assert.deepEqual([error.fault.code, error.fault.detail, error.fault.traceId], ["denied", "ssrf_blocked", "t"]);
    assert.equal(error.message, "No. Use another.");
    return true;
  });
  assert.equal(endpoint.seen.length, 1);
});

test("a path that a repetition does not find was removed by an earlier attempt", async (t) => {
  const lost = refusal(Code.Unavailable, { code: FaultCode.UNAVAILABLE, message: "Lost.", retryable: true });
  const missing = (detail: string) => refusal(Code.NotFound, { code: FaultCode.NOT_FOUND, message: "Missing.", detail });
  const remove = async (...failures: ConnectError[]): Promise<void> => {
    const { endpoint, dray } = await connected(t, (number) => {
      const failure = failures[number - 1];
      if (failure !== undefined) throw failure;
      return {};
    });
    try {
      await dray.sandbox("docker:web").remove("/work/f");
    } finally {
      assert.equal(endpoint.seen.length, failures.length);
    }
  };
  await remove(lost, missing("not_found"));
  await assert.rejects(remove(missing("not_found")), NotFoundError);
  await assert.rejects(remove(lost, missing("sandbox_gone")), NotFoundError);
});

test("an unknown caller gets a separate error", async (t) => {
  const { dray } = await connected(t, () => {
    throw new ConnectError("a proxy says no", Code.Unauthenticated);
  });
  await assert.rejects(dray.fetch("http://a/"), UnauthenticatedError);
});

test("attempts end at their maximum", async (t) => {
  const { endpoint, dray } = await connected(t, () => {
    throw new ConnectError("down", Code.Unavailable);
  });
  await assert.rejects(dray.fetch("http://a/"), UnavailableError);
  assert.equal(endpoint.seen.length, 10);
});

test("a failure that lasts is thrown immediately with the advice of the service", async (t) => {
  const { endpoint, dray } = await connected(t, () => {
    const texts = { message: "No engine.", advice: "Start it." };
    throw refusal(Code.Unavailable, { code: FaultCode.UNAVAILABLE, ...texts, retryable: true, retryAfterMs: 10_001n });
  });
  // Time for all attempts with the delays that the service asks for.
  await assert.rejects(dray.withOptions({ timeoutMs: 3_600_000 }).fetch("http://a/"), (error) => {
    assert.ok(error instanceof UnavailableError);
    assert.deepEqual([error.message, error.fault.retryable], ["No engine. Start it.", true]);
    return true;
  });
  assert.equal(endpoint.seen.length, 1);
});

test("only unavailable with a long delay counts as lasting", () => {
  for (const [code, retryAfterMs, expected] of [
    ["unavailable", 10_000, false],
    ["unavailable", 30_000, true],
    ["rate_limited", 30_000, false],
    ["timeout", 30_000, false],
  ] as const) {
    const fault = makeFault(code, "Later.", { retryable: true, retryAfterMs });
    assert.equal(lasts(undefined, fault), expected, `${code} ${retryAfterMs}`);
  }
  assert.equal(lasts({ maxUnavailableDelayMs: 60_000 }, makeFault("unavailable", "", { retryAfterMs: 30_000 })), false);
});

test("names that no tool has are refused before a call is published", async (t) => {
  const { endpoint, dray } = await connected(t, () => ({}));
  // The publisher has no connection, because nothing may be sent.
  const construct = Publisher as unknown as new (connection: undefined, settings: object) => Publisher;
  const publisher = new construct(undefined, { tenant: "acme" });
  for (const [tool, toolCallId, reason] of [
    ["", "c", "`tool` must not be empty"],
    ["a\nb", "c", "`tool` must not contain control characters"],
    ["t", "", "`toolCallId` must not be empty"],
    ["t", "c\x85", "`toolCallId` must not contain control characters"],
    ["t".repeat(1_000_000), undefined, "`tool` must not be longer than 512 bytes"],
    ["t", "ü".repeat(257), "`toolCallId` must not be longer than 512 bytes"],
  ] as const) {
    const message = new RegExp(reason);
    const settings = toolCallId === undefined ? {} : { toolCallId };
    await assert.rejects(dray.publishToolCall(tool, {}, settings), { name: "TypeError", message });
    await assert.rejects(publisher.publishToolCall(tool, {}, settings), { name: "TypeError", message });
  }
  assert.equal(endpoint.seen.length, 0);
  // This endpoint has no such method.
  await assert.rejects(dray.publishToolCall("ü".repeat(256), {}, { toolCallId: "c" }), { name: "UnsupportedError" });
});

test("a delay beyond the deadline is not waited for", async (t) => {
  const { endpoint, dray } = await connected(t, () => {
    const fault = { code: FaultCode.UNAVAILABLE, message: "Later.", retryable: true, retryAfterMs: 3_600_000n };
    throw refusal(Code.Unavailable, fault);
  });
  await assert.rejects(dray.fetch("http://a/"), UnavailableError);
  assert.equal(endpoint.seen.length, 1);
});

test("a service that hangs ends at the deadline of the client", async (t) => {
  const { dray } = await connected(t, (_number, _url, request) => hang(request));
  await assert.rejects(dray.withOptions({ timeoutMs: 200 }).fetch("http://a/"), DeadlineError);
});

test("a signal ends the request with its own reason", async (t) => {
  const controller = new AbortController();
  const reason = new Error("the user left");
  const { dray } = await connected(t, (_number, _url, request) => {
    controller.abort(reason);
    return hang(request);
  });
  const { signal } = controller;
  await assert.rejects(dray.withOptions({ signal }).fetch("http://a/"), reason);
  await assert.rejects(dray.withOptions({ signal }).fetch("http://a/"), reason);
});

test("any number of requests under one signal ends without a warning", async (t) => {
  const controller = new AbortController();
  const { signal } = controller;
  const warnings: Error[] = [];
  const warn = (warning: Error) => warnings.push(warning);
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  const { dray } = await connected(t, (number, _url, request) => {
    if (number === 12) controller.abort(new Error("the user left"));
    return hang(request);
  });
  const limited = dray.withOptions({ signal });
  const requests = Array.from({ length: 12 }, () => assert.rejects(limited.fetch("http://a/"), /the user left/));
  await Promise.all(requests);
  assert.deepEqual(warnings, []);
  // The listener was removed with the last request.
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

test("a connection that breaks in the middle is repeated with the same operation id", async (t) => {
  let endpoint: FakeEndpoint | undefined;
  const started = await connected(t, (number, url, request) => {
    if (number > 2) return { name: url };
    endpoint?.breakConnections();
    return hang(request);
  });
  endpoint = started.endpoint;
  assert.equal((await started.dray.fetch("http://a/")).name, "http://a/");
  assert.equal(new Set(endpoint.seen.map((header) => header.get("dray-operation"))).size, 1);
});

test("an address without a listener is reported as unavailable", async () => {
  // Port 1 is never given to a test server.
  const dray = new Dray("127.0.0.1:1", { plaintext: true, retry: { maxAttempts: 2, firstDelayMs: 1 } });
  await assert.rejects(dray.fetch("http://a/"), UnavailableError);
  dray.close();
});

test("an endpoint without TLS is named as such and not tried again", async (t) => {
  const endpoint = await FakeEndpoint.start(() => ({}));
  const dray = new Dray(endpoint.target, { tenant: "a", retry: FAST_RETRY });
  t.after(() => {
    dray.close();
    endpoint.stop();
  });
  await assert.rejects(dray.fetch("http://a/"), (error) => {
    assert.ok(error instanceof UnavailableError && error.fault.advice.includes("plaintext: true"));
    assert.deepEqual([error.fault.detail, error.fault.retryable], ["endpoint_without_tls", false]);
    return true;
  });
});

test("options travel as metadata", async (t) => {
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const endpoint = await FakeEndpoint.start(() => ({}));
  const dray = new Dray(endpoint.target, { token: "secret", plaintext: true });
  t.after(() => {
    dray.close();
    endpoint.stop();
  });
  await dray.withOptions({ operationId: "o-1", session: "s", app: "p", traceparent }).fetch("http://a/");
  const pairs = { authorization: "Bearer secret", "dray-operation": "o-1", "dray-session": "s", "dray-app": "p", traceparent };
  for (const [name, value] of Object.entries(pairs)) assert.equal(endpoint.seen[0]?.get(name), value, name);
  assert.equal(endpoint.seen[0]?.get("dray-tenant"), null);
});

test("requests go to the endpoint of their service", async (t) => {
  const [first, second] = [await FakeEndpoint.start(() => ({})), await FakeEndpoint.start(() => ({}))];
  const endpoints = { "dray.v1.Sandboxes": second.target };
  const dray = new Dray(first.target, { tenant: "a", plaintext: true, endpoints });
  t.after(() => {
    dray.close();
    first.stop();
    second.stop();
  });
  await dray.fetch("http://a/");
  await dray.sandbox("docker:web").stat("a");
  assert.deepEqual([first.seen.length, second.seen.length], [1, 1]);
});

test("a wrong argument is named, also for callers without a compiler", async (t) => {
  const { dray: typed } = await connected(t, () => ({}));
  // Plain JavaScript calls it without types.
  const dray = typed as any;
  const box = dray.sandbox("docker:web");
  for (const [call, message] of [
    [() => dray.sandbox(5).ls("a"), "`address` must be text, not number"],
    [() => box.get(null), "`path` must be text or bytes, not null"],
    [() => box.ls({}), "`path` must be text or bytes, not Object"],
    [() => box.exec(["cat", 1]), "`path` must be text or bytes, not number"],
    [() => dray.send(5, {}), "`session` must be text, not number"],
    [() => dray.send("s", { paths: "a" }), "`paths` must be a list, not string"],
    [() => dray.fetch(["http://a/"]), "`url` must be text, not a list"],
    [() => dray.resolve(5), "`toolArguments` must be an object or JSON text, not number"],
    [() => dray.publishToolCall(5, {}), "`tool` must be text, not number"],
    [() => dray.receipts({ limit: "5" }), "`limit` must be a number, not string"],
    [() => dray.receipts({ limit: -1 }), "`limit` is -1, which is not a whole number from 0 to 4294967295"],
    [() => dray.receipts({ limit: 1.5 }), "`limit` is 1.5, which is not a whole number from 0 to 4294967295"],
    [() => dray.receipts({ openOnly: 1 }), "`openOnly` must be true or false, not number"],
    [() => dray.uploadTicket("s", { lifetimeSeconds: "5" }), "`lifetimeSeconds` must be a number, not string"],
    [() => dray.ticket(5), "`ticketId` must be text, not number"],
    [() => dray.delivery(5).outcome(), "`deliveryId` must be text, not number"],
    [() => dray.withOptions({ timeoutMs: "5" }).fetch("http://a/"), "`timeoutMs` must be a number, not string"],
    [() => dray.call(5, {}), "`method` must be a method of a service (`v1.Files.method.resolve`), not number"],
    [() => dray.call(Files.method.resolve, 5), "`request` must be an object, not number"],
    [() => dray.fetch("http://a/", null), "`settings` must be an object, not null"],
    [() => box.ls(".", 2), "`settings` must be an object, not number"],
  ] as const) {
    await assert.rejects(async () => call(), { name: "TypeError", message });
  }
  assert.throws(() => new Dray(5 as any), { name: "TypeError", message: /^`target` must be an address/ });
});

test("an option that does not exist is named with those that do", async (t) => {
  const { endpoint, dray: typed } = await connected(t, () => ({}));
  const dray = typed as any;
  const box = dray.sandbox("docker:web");
  for (const [call, option] of [
    [() => dray.withOptions({ timeout: 5 }), "timeout"],
    [() => dray.withOptions({ retry: { attempts: 1 } }), "attempts"],
    [() => dray.resolve({}, { max_bytes: 5 }), "max_bytes"],
    [() => dray.publishToolCall("t", {}, { operationId: "a" }), "operationId"],
    [() => dray.fetch("http://a/", { nested: true }), "nested"],
    [() => dray.read("http://a/", { pages: "1" }), "pages"],
    [() => dray.store(Buffer.from("a"), { title: "a" }), "title"],
    [() => dray.bindSession("s", { target: "docker:web" }), "target"],
    [() => dray.send("s", { text: "a" }), "text"],
    [() => dray.receipts({ open: true }), "open"],
    [() => dray.uploadTicket("s", { digest: "a" }), "digest"],
    [() => dray.downloadTicket("s", "a", { seconds: 5 }), "seconds"],
    [() => dray.tickets("s", { count: 5 }), "count"],
    [() => dray.delivery("d").outcome({ timeout: 5 }), "timeout"],
    [() => box.get("a", { path: "a" }), "path"],
    [() => box.put(Buffer.from("a"), { name: "a", overwrite: true }), "overwrite"],
    [() => box.ls(".", { recursive: true }), "recursive"],
    [() => box.stat("a", { followLinks: true }), "followLinks"],
    [() => box.exec(["a"], { env: {} }), "env"],
    [() => box.remove("a", { force: true }), "force"],
  ] as const) {
    const message = new RegExp(`has no option \`${option}\`; its options are `);
    await assert.rejects(async () => call(), { name: "TypeError", message });
  }
  assert.throws(() => new Dray("127.0.0.1:1", { tls: { ca: "a" } } as any), /has no option `ca`; .*caCertificate/);
  assert.equal(endpoint.seen.length, 0);
});

test("an address of a service that does not exist is refused with those that do", () => {
  const endpoints = { "dray.v1.Sandbox": "127.0.0.1:1" };
  const connect = () => new Dray("127.0.0.1:1", { tenant: "a", plaintext: true, endpoints });
  assert.throws(connect, { name: "TypeError", message: /`dray\.v1\.Sandbox`; .*dray\.v1\.Sandboxes/ });
});

test("a token does not travel to other machines without TLS", () => {
  const connect = (target: string, more = {}) => () => new Dray(target, { token: "secret", plaintext: true, ...more });
  assert.throws(connect("files.example.org:50051"), TypeError);
  assert.throws(connect("127.0.0.1.example.org:50051"), TypeError);
  assert.throws(connect("127.0.0.1:1", { endpoints: { "dray.v1.Files": "10.0.0.1:1" } }), TypeError);
  assert.throws(connect("127.0.0.1:1", { tls: {} }), TypeError);
  for (const target of ["127.0.0.1:1", "localhost:1", "[::1]:1"]) connect(target)().close();
});

test("values that cannot be metadata are refused by name without their content", async (t) => {
  const { endpoint, dray } = await connected(t, () => ({}));
  // An empty id would be a new operation for each repetition.
  for (const [name, value] of [["operationId", ""], ["operationId", "a\n"], ["session", "ü"], ["app", " a"]] as const) {
    await assert.rejects(dray.withOptions({ [name]: value }).fetch("http://a/"), new RegExp(`\`${name}\``));
  }
  assert.throws(
    () => new Dray("127.0.0.1:1", { token: "secret\n" }),
    (error: Error) => error.message.includes("`token`") && !error.message.includes("secret"),
  );
  assert.throws(() => new Dray("127.0.0.1:1", { tenant: "größe" }), /`tenant`/);
  await assert.rejects(dray.withOptions({ timeoutMs: NaN }).fetch("http://a/"), /`timeoutMs`/);
  for (const target of ["", "http://127.0.0.1:1", "a", "a:", ":1", "::1:1", "a:0", "a:65536", "a:99999", "a:-1", "a:x"]) {
    assert.throws(() => new Dray(target), /is not an address/, target);
  }
  for (const target of ["a:1/x", "a:1?x=1", "a:1#x", "me:pw@a:1", "a b:1", "a\\b:1"]) {
    assert.throws(() => new Dray(target), /is not an address/, target);
  }
  for (const target of ["a:1", "a_b.example.org:65535", "[::1]:50051", "a:443"]) new Dray(target).close();
  assert.equal(endpoint.seen.length, 0);
});

test("very long and infinite timeouts do not count as passed", async (t) => {
  const { endpoint, dray } = await connected(t, () => ({ name: "found" }));
  for (const timeoutMs of [1e9, 2 ** 31, 1e15, Infinity]) {
    assert.equal((await dray.withOptions({ timeoutMs }).fetch("http://a/")).name, "found");
  }
  // At most eight digits and a unit (gRPC over HTTP/2).
  for (const header of endpoint.seen) assert.match(header.get("grpc-timeout") ?? "", /^\d{1,8}m$/);
});

test("a closed client refuses requests", async (t) => {
  const { endpoint, dray } = await connected(t, () => ({}));
  dray.close();
  await assert.rejects(dray.fetch("http://a/"), /closed/);
  assert.equal(endpoint.seen.length, 0);
});

test("arguments that would lose a condition are refused", async (t) => {
  const { dray } = await connected(t, () => ({}));
  for (const sha256 of ["zz", "abcd", "z".repeat(64)]) await assert.rejects(dray.uploadTicket("s", { sha256 }), /`sha256`/);
  for (const maxBytes of [-1, 0.5, NaN]) await assert.rejects(dray.uploadTicket("s", { maxBytes }), /`maxBytes`/);
  for (const chat of ["telegram", "telegram:", ":42"]) await assert.rejects(dray.bindSession("s", { chat }), /telegram:42/);
  // A program without types can pass such a value.
  const wrong = 3 as unknown as Uint8Array;
  await assert.rejects(dray.readBytes(wrong as never), /neither a local source nor a stored file/);
  await assert.rejects(dray.sandbox("docker:web").put(wrong, { name: "a" }), /neither a local source/);
  const box = dray.sandbox("docker:web");
  await assert.rejects(box.exec("ls" as never), /list of words/);
  await assert.rejects(box.exec(["cat"], { stdin: "text" as never }), /`stdin` is text/);
  for (const time of [Infinity, NaN, 1e300, -1]) {
    await assert.rejects(box.exec(["cat"], { timeoutMs: time }), /`timeoutMs`/);
    await assert.rejects(dray.uploadTicket("s", { lifetimeSeconds: time }), /`lifetimeSeconds`/);
    await assert.rejects(dray.downloadTicket("s", "f", { lifetimeSeconds: time }), /`lifetimeSeconds`/);
  }
});

test("the current span of OpenTelemetry is the trace context", async (t) => {
  const storage = new AsyncLocalStorage<Context>();
  const manager: ContextManager = {
    active: () => storage.getStore() ?? ROOT_CONTEXT,
    with: (active, run, self, ...rest) => storage.run(active, () => run.apply(self, rest)),
    bind: (_active, target) => target,
    enable: () => manager,
    disable: () => manager,
  };
  context.setGlobalContextManager(manager);
  t.after(() => context.disable());
  const { endpoint, dray } = await connected(t, () => ({}));
  const span = { traceId: "4bf92f3577b34da6a3ce929d0e0e4736", spanId: "00f067aa0ba902b7", traceFlags: 1 };
  await context.with(trace.setSpanContext(ROOT_CONTEXT, span), () => dray.fetch("http://a/"));
  await dray.fetch("http://a/");
  const sent = endpoint.seen.map((header) => header.get("traceparent"));
  assert.deepEqual(sent, [`00-${span.traceId}-${span.spanId}-01`, null]);
});

test("delays double up to their limit and are never shorter than the service asks for", () => {
  const longest = () => 1;
  assert.deepEqual([1, 2, 3, 20].map((attempt) => retryDelayMs(undefined, attempt, 0, longest)), [100, 200, 400, 5_000]);
  assert.equal(retryDelayMs(undefined, 1, 700, longest), 700);
  assert.equal(retryDelayMs(undefined, 1, 0, () => 0), 0);
});
