/** The client against servers that break the protocol, and with callers who close it during a request. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import {
  constants,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";

import { Deadline } from "../src/deadline.js";
import {
  CommandEnd,
  DeniedError,
  Dray,
  DrayageError,
  InternalError,
  type RetryPolicy,
  UnavailableError,
} from "../src/index.js";
import { SessionManager } from "../src/session_manager.js";
import { Transfers } from "../src/transfers.js";
import { ExecSandboxEventSchema, FetchReplySchema } from "../src/v1/index.js";

const FAST_RETRY: RetryPolicy = { maxAttempts: 3, firstDelayMs: 1, maxDelayMs: 10 };
const HEADERS = { ":status": 200, "content-type": "application/grpc+proto" };

/** A server of HTTP/2 that answers with one function, and counts the requests. */
class RawEndpoint {
  count = 0;
  /** Called with the headers of each request. */
  onRequest: (headers: IncomingHttpHeaders) => void = () => undefined;
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();

  constructor(handle: (number: number, stream: ServerHttp2Stream) => void) {
    this.#server = createServer();
    this.#server.on("session", (session) => this.#sessions.add(session));
    this.#server.on("stream", (stream, headers) => {
      this.onRequest(headers);
      // A client that leaves resets its stream.
      stream.on("error", () => undefined);
      handle(++this.count, stream);
    });
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    for (const session of this.#sessions) session.destroy();
    this.#server.close();
  }
}

async function connected(
  t: TestContext,
  handle: (number: number, stream: ServerHttp2Stream) => void,
): Promise<{ endpoint: RawEndpoint; dray: Dray }> {
  const endpoint = new RawEndpoint(handle);
  const dray = new Dray(await endpoint.start(), { tenant: "acme", plaintext: true, retry: FAST_RETRY });
  t.after(() => {
    dray.close();
    endpoint.stop();
  });
  return { endpoint, dray };
}

/** A message with its length, as it travels. */
function frame(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.byteLength, 1);
  return Buffer.concat([prefix, message]);
}

function event(body: NonNullable<MessageInitShape<typeof ExecSandboxEventSchema>["event"]>): Buffer {
  return frame(toBinary(ExecSandboxEventSchema, create(ExecSandboxEventSchema, { event: body })));
}

const CHUNK = event({ case: "stdout", value: Buffer.from("one") });
const END = event({ case: "end", value: {} });

/** Sends bytes and the status of a success. */
function succeed(stream: ServerHttp2Stream, body: Uint8Array): void {
  stream.respond(HEADERS, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.end(body);
}

/** The events of a program and the error at its end. */
async function run(dray: Dray): Promise<{ events: unknown[]; error: unknown }> {
  const events: unknown[] = [];
  try {
    for await (const received of dray.sandbox("local:/x").execStream(["a"])) events.push(received);
    return { events, error: undefined };
  } catch (error) {
    return { events, error };
  }
}

test("an IPv6 address has its brackets in the authority of a request", async (t) => {
  const authorities: unknown[] = [];
  const endpoint = new RawEndpoint((_number, stream) => stream.respond({ ":status": 200 }, { endStream: true }));
  const port = Number((await endpoint.start()).split(":")[1]);
  endpoint.onRequest = (headers) => authorities.push(headers[":authority"]);
  for (const host of ["[::1]", "localhost"]) {
    const address = `http://${host}:${port}`;
    const manager = new SessionManager(address, {}, { createConnection: () => connect(port, "127.0.0.1") });
    t.after(() => manager.abort());
    const stream = await manager.request("POST", "/", {}, {});
    stream.resume().end();
    await once(stream, "close");
  }
  endpoint.stop();
  assert.deepEqual(authorities, [`[::1]:${port}`, `localhost:${port}`]);
});

test("a stream without the end of its program is an error", async (t) => {
  const { endpoint, dray } = await connected(t, (_number, stream) => succeed(stream, CHUNK));
  const { events, error } = await run(dray);
  assert.ok(error instanceof UnavailableError);
  assert.deepEqual([events.length, error.fault.detail, endpoint.count], [1, "incomplete_reply", 1]);
});

test("a stream without messages is repeated", async (t) => {
  const { endpoint, dray } = await connected(t, (number, stream) => {
    succeed(stream, number === 1 ? Buffer.alloc(0) : Buffer.concat([CHUNK, END]));
  });
  const { events, error } = await run(dray);
  assert.equal(error, undefined);
  assert.equal(endpoint.count, 2);
  assert.ok(events[1] instanceof CommandEnd);
});

test("a reply that breaks off is requested again", async (t) => {
  const reply = frame(toBinary(FetchReplySchema, create(FetchReplySchema, { name: "a" })));
  const { endpoint, dray } = await connected(t, (number, stream) => {
    if (number === 1) {
      stream.respond(HEADERS);
      stream.end(reply);
    } else {
      succeed(stream, number === 2 ? reply.subarray(0, 6) : reply);
    }
  });
  assert.equal((await dray.fetch("http://a/")).name, "a");
  assert.equal(endpoint.count, 3);
});

type Events = ReturnType<ReturnType<Dray["sandbox"]>["execStream"]>;

/** A program that writes once and is silent. `closed` resolves when the client has reset its stream. */
async function silentProgram(t: TestContext): Promise<{ dray: Dray; closed: Promise<void> }> {
  let close!: () => void;
  const closed = new Promise<void>((resolve) => (close = resolve));
  const { dray } = await connected(t, (_number, stream) => {
    stream.on("close", close);
    stream.respond(HEADERS);
    stream.write(CHUNK);
  });
  return { dray: dray.withOptions({ timeoutMs: 3_600_000 }), closed };
}

/** The bytes after which a server ends the stream of a reply with RST_STREAM and NO_ERROR. */
const RESETS: Record<string, (stream: ServerHttp2Stream, reply: Buffer) => void> = {
  "before its headers": (stream) => stream.close(constants.NGHTTP2_NO_ERROR),
  "after its headers": (stream) => {
    stream.respond(HEADERS);
    setImmediate(() => stream.close(constants.NGHTTP2_NO_ERROR));
  },
  "within its message": (stream, reply) => {
    stream.respond(HEADERS);
    stream.write(reply.subarray(0, 6), () => stream.close(constants.NGHTTP2_NO_ERROR));
  },
  "before its trailers": (stream, reply) => {
    stream.respond(HEADERS, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.close(constants.NGHTTP2_NO_ERROR));
    stream.end(reply);
  },
};

for (const [when, reset] of Object.entries(RESETS)) {
  test(`a reply that the server resets without an error ${when} is requested again`, async (t) => {
    const reply = frame(toBinary(FetchReplySchema, create(FetchReplySchema, { name: "a" })));
    const { endpoint, dray } = await connected(t, (number, stream) => {
      if (number < 3) reset(stream, reply);
      else succeed(stream, reply);
    });
    assert.equal((await dray.fetch("http://a/")).name, "a");
    assert.equal(endpoint.count, 3);
  });

  test(`a program whose stream the server resets without an error ${when} ends with a fault`, async (t) => {
    const { endpoint, dray } = await connected(t, (_number, stream) => reset(stream, CHUNK));
    const { events, error } = await run(dray);
    assert.ok(error instanceof UnavailableError);
    assert.deepEqual([error.fault.detail, error.fault.retryable], ["incomplete_reply", true]);
    // Once an event has arrived, the program is not started again.
    const hasEvent = when === "before its trailers";
    assert.deepEqual([events.length, endpoint.count], hasEvent ? [1, 1] : [0, 3]);
  });
}

for (const [how, leave] of [
  ["return", async (events: Events) => assert.equal((await events.return()).done, true)],
  ["throw", (events: Events) => assert.rejects(events.throw(new Error("the user left")), /the user left/)],
] as const) {
  // Without its end, the test would wait for the deadline.
  test(`a silent program ends with the ${how} of its reader`, { timeout: 20_000 }, async (t) => {
    const { dray, closed } = await silentProgram(t);
    const events = dray.sandbox("docker:web").execStream(["true"]);
    assert.equal((await events.next()).done, false);
    const pending = events.next();
    await leave(events);
    assert.deepEqual([await pending, await events.next()], Array(2).fill({ done: true, value: undefined }));
    await closed;
  });
}

test("a silent program ends with the stream of Node.js that reads it", { timeout: 20_000 }, async (t) => {
  const { dray, closed } = await silentProgram(t);
  const readable = Readable.from(dray.sandbox("docker:web").execStream(["true"]));
  await once(readable, "data");
  readable.destroy();
  await closed;
});

test("a program whose input is still stored ends with the return of its reader", { timeout: 20_000 }, async (t) => {
  let waiting!: () => void;
  const isWaiting = new Promise<void>((resolve) => (waiting = resolve));
  const { dray } = await connected(t, () => waiting());
  const events = dray.withOptions({ timeoutMs: 3_600_000 }).sandbox("docker:web").execStream(["cat"], { stdin: new Blob(["a"]) });
  const pending = events.next();
  await isWaiting;
  await events.return();
  assert.equal((await pending).done, true);
});

test("a reply that is too large is not requested again", async (t) => {
  const { endpoint, dray } = await connected(t, (_number, stream) => succeed(stream, frame(Buffer.alloc(5 << 20))));
  await assert.rejects(dray.fetch("http://a/"), (error) => {
    assert.ok(error instanceof InternalError);
    assert.deepEqual([error.fault.detail, error.fault.retryable], ["reply_too_large", false]);
    return true;
  });
  assert.equal(endpoint.count, 1);
});

test("a fault that is not readable leaves its status", async (t) => {
  const packed = (number: number, data: Uint8Array) => Buffer.concat([Buffer.from([(number << 3) | 2, data.byteLength]), data]);
  const fault = Buffer.concat([packed(1, Buffer.from("type.googleapis.com/dray.v1.Fault")), packed(2, Buffer.alloc(3, 0xff))]);
  const status = Buffer.concat([Buffer.from([1 << 3, Code.PermissionDenied]), packed(3, fault)]);
  const details = status.toString("base64").replaceAll("=", "");
  const { dray } = await connected(t, (_number, stream) => {
    const trailers = { "grpc-status": String(Code.PermissionDenied), "grpc-status-details-bin": details };
    stream.respond({ ...HEADERS, ...trailers }, { endStream: true });
  });
  await assert.rejects(dray.fetch("http://a/"), DeniedError);
});

test("closing a client ends its requests and names the reason", async (t) => {
  let waiting!: () => void;
  const isWaiting = new Promise<void>((resolve) => (waiting = resolve));
  const { endpoint, dray } = await connected(t, (number) => {
    if (number === 2) waiting();
  });
  const fetching = dray.fetch("http://a/");
  const running = run(dray);
  await isWaiting;
  dray.close();
  const isClosed = (error: unknown) => error instanceof Error && !(error instanceof DrayageError) && /the client is closed/.test(error.message);
  await assert.rejects(fetching, isClosed);
  assert.ok(isClosed((await running).error));
  assert.equal(endpoint.count, 2);
});

test("a certificate of the store that is not trusted is named", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "drayage-test-"));
  t.after(() => rm(directory, { recursive: true }));
  const [certificate, key] = [join(directory, "certificate.pem"), join(directory, "key.pem")];
  const request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=store"];
  execFileSync("openssl", [...request, "-keyout", key, "-out", certificate], { stdio: "ignore" });
  const store = createHttpsServer({ cert: await readFile(certificate), key: await readFile(key) });
  await new Promise<void>((resolve) => store.listen(0, "127.0.0.1", resolve));
  t.after(() => store.close());
  const url = `https://127.0.0.1:${(store.address() as AddressInfo).port}/object`;
  const deadline = new Deadline(60_000);
  t.after(() => deadline.end());
  await assert.rejects(new Transfers(undefined).downloadBytes(url, undefined, deadline, FAST_RETRY), (error) => {
    assert.ok(error instanceof UnavailableError);
    assert.deepEqual([error.fault.detail, error.fault.retryable], ["untrusted_certificate", false]);
    assert.match(error.fault.advice, /storeCa/);
    return true;
  });
});
