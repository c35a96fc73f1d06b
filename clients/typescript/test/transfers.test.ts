/** Bodies against stores that misbehave: lengths, digests, refusals, silence. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { link, lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";

import { create } from "@bufbuild/protobuf";

import { Deadline } from "../src/deadline.js";
import { DeadlineError, Dray, IntegrityError, type RetryPolicy, UnavailableError } from "../src/index.js";
import { type LocalSource, type PreparedSource, prepareSource } from "../src/sources.js";
import { Transfers } from "../src/transfers.js";
import { type Artifact, ArtifactSchema, ContentSchema } from "../src/v1/index.js";
import { FakeStore } from "./fakes.js";

const FAST_RETRY: RetryPolicy = { maxAttempts: 4, firstDelayMs: 1, maxDelayMs: 10 };
const BODY = Buffer.alloc(3_000_017, "drayage ");
const TRANSFERS = new Transfers(undefined);

function artifactOf(bytes: Uint8Array): Artifact {
  const sha256 = createHash("sha256").update(bytes).digest();
  return create(ArtifactSchema, { size: BigInt(bytes.byteLength), sha256 });
}

async function store(
  t: TestContext,
  handle: (number: number, request: IncomingMessage, response: ServerResponse) => void,
): Promise<string> {
  const fake = await FakeStore.start(handle);
  t.after(() => fake.stop());
  return fake.url;
}

async function directory(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "drayage-test-"));
  t.after(() => rm(path, { recursive: true }));
  return path;
}

/** A directory in which the client puts its temporary files. */
async function temporaryDirectory(t: TestContext): Promise<string> {
  const temporary = await directory(t);
  const { TMPDIR } = process.env;
  process.env.TMPDIR = temporary;
  t.after(() => {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
  });
  return temporary;
}

function deadline(t: TestContext, timeoutMs = 60_000): Deadline {
  const created = new Deadline(timeoutMs);
  t.after(() => created.end());
  return created;
}

test("hashing bytes in memory leaves the event loop to others, and ends with the signal of the caller", async (t) => {
  const controller = new AbortController();
  const followed = new Deadline(60_000, controller.signal);
  t.after(() => followed.end());
  setImmediate(() => controller.abort(new Error("the user left")));
  await assert.rejects(prepareSource(BODY, followed), /the user left/);
});

test("a download that ends early is repeated from the start", async (t) => {
  const url = await store(t, (number, _request, response) => {
    response.writeHead(200, { "content-length": BODY.byteLength });
    if (number > 2) response.end(BODY);
    else response.write(BODY.subarray(0, 1000), () => response.destroy());
  });
  const target = join(await directory(t), "copy.bin");
  await TRANSFERS.downloadFile(url, artifactOf(BODY), target, deadline(t), FAST_RETRY);
  assert.ok((await readFile(target)).equals(BODY));
});

test("a file whose name is as long as possible is downloaded", async (t) => {
  const url = await store(t, (_number, _request, response) => response.end(BODY));
  const target = join(await directory(t), "n".repeat(255));
  await TRANSFERS.downloadFile(url, artifactOf(BODY), target, deadline(t), FAST_RETRY);
  assert.ok((await readFile(target)).equals(BODY));
});

test("content of a message replaces a file instead of changing it", async (t) => {
  const temporary = await directory(t);
  const [target, other] = [join(temporary, "f"), join(temporary, "link")];
  await writeFile(target, "before");
  await link(target, other);
  const dray = new Dray("127.0.0.1:1", { tenant: "acme", plaintext: true });
  t.after(() => dray.close());
  const content = create(ContentSchema, { body: { case: "inline", value: Buffer.from("after") } });
  await dray.download(content, target);
  assert.deepEqual([await readFile(target, "utf8"), await readFile(other, "utf8")], ["after", "before"]);
  assert.deepEqual((await readdir(temporary)).sort(), ["f", "link"]);
});

test("a link stays, and the file behind it is written", async (t) => {
  const url = await store(t, (_number, _request, response) => response.end(BODY));
  const temporary = await directory(t);
  await mkdir(join(temporary, "parent", "elsewhere"), { recursive: true });
  await writeFile(join(temporary, "parent", "elsewhere", "old"), "before");
  await symlink(join(temporary, "parent", "elsewhere"), join(temporary, "linked"));
  await symlink("linked/old", join(temporary, "direct"));
  await symlink("direct", join(temporary, "indirect"));
  await symlink("linked/../new", join(temporary, "dangling"));
  await symlink("circle", join(temporary, "circle"));
  for (const [target, file] of [["indirect", "parent/elsewhere/old"], ["dangling", "parent/new"]] as const) {
    await TRANSFERS.downloadFile(url, artifactOf(BODY), join(temporary, target), deadline(t), FAST_RETRY);
    assert.ok((await lstat(join(temporary, target))).isSymbolicLink());
    assert.ok((await readFile(join(temporary, file))).equals(BODY));
  }
  const circle = TRANSFERS.downloadFile(url, artifactOf(BODY), join(temporary, "circle"), deadline(t), FAST_RETRY);
  await assert.rejects(circle, { code: "ELOOP" });
  assert.deepEqual(await readdir(join(temporary, "parent", "elsewhere")), ["old"]);
});

test("a pipe is refused before anything is downloaded", async (t) => {
  const url = await store(t, () => assert.fail("the file was requested"));
  const temporary = await directory(t);
  const [pipe, link] = [join(temporary, "pipe"), join(temporary, "link")];
  execFileSync("mkfifo", [pipe]);
  await symlink("pipe", link);
  const dray = new Dray("127.0.0.1:1", { tenant: "acme", plaintext: true });
  t.after(() => dray.close());
  const content = create(ContentSchema, { body: { case: "inline", value: Buffer.from("after") } });
  const refused = { code: "EEXIST", message: /the target exists and is not a regular file/ };
  for (const target of [pipe, link]) {
    await assert.rejects(TRANSFERS.downloadFile(url, artifactOf(BODY), target, deadline(t), FAST_RETRY), refused);
    await assert.rejects(dray.download(content, target), refused);
  }
  assert.ok((await lstat(pipe)).isFIFO());
  assert.deepEqual((await readdir(temporary)).sort(), ["link", "pipe"]);
});

for (const [what, sent] of [
  ["other", Buffer.alloc(BODY.byteLength, "x")],
  ["more", Buffer.concat([BODY, Buffer.from("!")])],
] as const) {
  test(`${what} bytes than announced leave no file`, async (t) => {
    let count = 0;
    const url = await store(t, (number, _request, response) => {
      count = number;
      response.end(sent);
    });
    const temporary = await directory(t);
    const copy = TRANSFERS.downloadFile(url, artifactOf(BODY), join(temporary, "copy.bin"), deadline(t), FAST_RETRY);
    await assert.rejects(copy, IntegrityError);
    assert.deepEqual([count, await readdir(temporary)], [1, []]);
  });
}

test("a stream errors at its end when the digest differs", async (t) => {
  const url = await store(t, (_number, _request, response) => response.end(Buffer.alloc(BODY.byteLength, "x")));
  const stream = await TRANSFERS.downloadStream(url, artifactOf(BODY), deadline(t), FAST_RETRY);
  let count = 0;
  const reading = (async () => {
    for await (const chunk of stream) count += chunk.byteLength;
  })();
  await assert.rejects(reading, IntegrityError);
  assert.equal(count, BODY.byteLength);
});

test("a cancelled stream closes its connection", async (t) => {
  let closed!: () => void;
  const closing = new Promise<void>((resolve) => (closed = resolve));
  const url = await store(t, (_number, request, response) => {
    request.socket.on("close", closed);
    response.writeHead(200, { "content-length": BODY.byteLength }).write(BODY.subarray(0, 1000));
  });
  const stream = await TRANSFERS.downloadStream(url, artifactOf(BODY), deadline(t), FAST_RETRY);
  const reader = stream.getReader();
  assert.equal((await reader.read()).value?.byteLength, 1000);
  await reader.cancel();
  await closing;
});

test("a reader of a stream may pause for longer than a store may be silent", async (t) => {
  const body = Buffer.alloc(8 << 20, "drayage ");
  const url = await store(t, (_number, _request, response) => response.end(body));
  const silentUrl = await store(t, (_number, _request, response) => response.writeHead(200).write("a"));
  const transfers = new Transfers(undefined, 1_000);
  const stream = await transfers.downloadStream(url, artifactOf(body), deadline(t), FAST_RETRY);
  let count = 0;
  for await (const chunk of stream) {
    // The pause is as long as another store is waited for.
    if (count === 0) {
      const silent = transfers.downloadBytes(silentUrl, artifactOf(body), deadline(t), { maxAttempts: 1 });
      await assert.rejects(silent, (error) => error instanceof UnavailableError && error.fault.detail === "transfer_failed");
    }
    count += chunk.byteLength;
  }
  assert.equal(count, body.byteLength);
});

test("a store that stalls ends at the deadline", async (t) => {
  const url = await store(t, (_number, _request, response) => response.writeHead(200).write("a"));
  const bytes = TRANSFERS.downloadBytes(url, artifactOf(BODY), deadline(t, 200), FAST_RETRY);
  await assert.rejects(bytes, DeadlineError);
});

for (const status of [302, 403]) {
  test(`status ${status} is a refusal that is not repeated or followed`, async (t) => {
    let count = 0;
    const url = await store(t, (number, _request, response) => {
      count = number;
      response.writeHead(status, { location: "/elsewhere" }).end();
    });
    await assert.rejects(TRANSFERS.downloadBytes(url, artifactOf(BODY), deadline(t), FAST_RETRY), UnavailableError);
    assert.equal(count, 1);
  });
}

test("a store that keeps failing is reported after the last attempt", async (t) => {
  let count = 0;
  const url = await store(t, (number, _request, response) => {
    count = number;
    response.writeHead(503).end();
  });
  await assert.rejects(TRANSFERS.downloadBytes(url, artifactOf(BODY), deadline(t), FAST_RETRY), UnavailableError);
  assert.equal(count, 4);
});

/** A store that keeps the received bodies, and fails the first request. */
async function receiver(t: TestContext): Promise<{ url: string; bodies: Buffer[]; lengths: (string | undefined)[] }> {
  const bodies: Buffer[] = [];
  const lengths: (string | undefined)[] = [];
  const url = await store(t, (number, request, response) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      bodies.push(Buffer.concat(parts));
      lengths.push(request.headers["content-length"]);
      response.writeHead(number === 1 ? 500 : 200).end();
    });
  });
  return { url, bodies, lengths };
}

test("sources of every kind are uploaded completely, and again after a failure", async (t) => {
  const path = join(await directory(t), "body.bin");
  await writeFile(path, BODY);
  const sources: [LocalSource, string][] = [
    [path, "body.bin"],
    [new URL(`file://${path}`), "body.bin"],
    [BODY, ""],
    [new Blob([BODY]), ""],
    [new Blob([BODY]).stream(), ""],
    [new Uint8Array(BODY).buffer, ""],
    [Readable.from([BODY.subarray(0, 9), BODY.subarray(9)]), ""],
  ];
  for (const [source, name] of sources) {
    const { url, bodies, lengths } = await receiver(t);
    const prepared = await prepareSource(source, deadline(t));
    assert.deepEqual([prepared.name, prepared.size], [name, BODY.byteLength]);
    assert.deepEqual(Buffer.from(prepared.sha256), Buffer.from(artifactOf(BODY).sha256));
    await TRANSFERS.upload(url, { "x-signed": "1" }, prepared, deadline(t), FAST_RETRY);
    await prepared.dispose();
    assert.deepEqual(lengths, [String(BODY.byteLength), String(BODY.byteLength)]);
    assert.ok(bodies.every((body) => body.equals(BODY)));
  }
});

test("a stream that is silent ends at the deadline and is cancelled", { timeout: 20_000 }, async (t) => {
  const temporary = await temporaryDirectory(t);
  let cancelled: unknown;
  const node = new Readable({ read: () => undefined });
  const web = new ReadableStream<Uint8Array>({ cancel: (reason) => void (cancelled = reason ?? "cancelled") });
  const iterable = (async function* () {
    yield BODY;
    await new Promise(() => undefined);
  })();
  for (const source of [iterable, web, node]) {
    await assert.rejects(prepareSource(source, deadline(t, 50)), DeadlineError);
  }
  assert.deepEqual([cancelled, node.destroyed, await readdir(temporary)], ["cancelled", true, []]);
});

test("a stream of anything but bytes is refused", async (t) => {
  const temporary = await temporaryDirectory(t);
  await assert.rejects(prepareSource(Readable.from([1, 2]), deadline(t)), /`chunk` must be bytes, not number/);
  assert.deepEqual(await readdir(temporary), []);
});

test("an iterator whose `return` gives no promise is read", async (t) => {
  const chunks = [BODY];
  const iterator = {
    next: async () => ({ done: chunks.length === 0, value: chunks.shift() }),
    return: () => ({ done: true }),
  };
  const source = { [Symbol.asyncIterator]: () => iterator } as unknown as AsyncIterable<Uint8Array>;
  const { size, dispose } = await prepareSource(source, deadline(t));
  await dispose?.();
  assert.equal(size, BODY.byteLength);
});

test("a pipe is refused by its path", { timeout: 20_000 }, async (t) => {
  const pipe = join(await directory(t), "pipe");
  execFileSync("mkfifo", [pipe]);
  await assert.rejects(prepareSource(pipe, deadline(t)), /is a pipe/);
});

test("an empty file is uploaded", async (t) => {
  const { url, bodies, lengths } = await receiver(t);
  await TRANSFERS.upload(url, {}, await prepareSource(new Uint8Array(), deadline(t)), deadline(t), FAST_RETRY);
  assert.deepEqual([bodies.at(-1)?.byteLength, lengths.at(-1)], [0, "0"]);
});

test("a file that grew is uploaded as it was announced, and one that shrank is refused", async (t) => {
  const path = join(await directory(t), "body.bin");
  await writeFile(path, BODY);
  const prepared: PreparedSource = await prepareSource(path, deadline(t));
  await writeFile(path, Buffer.concat([BODY, BODY]));
  const { url, bodies } = await receiver(t);
  await TRANSFERS.upload(url, {}, prepared, deadline(t), FAST_RETRY);
  assert.equal(bodies.at(-1)?.byteLength, BODY.byteLength);
  await truncate(path, 1000);
  await assert.rejects(TRANSFERS.upload(url, {}, prepared, deadline(t), FAST_RETRY), IntegrityError);
});

/** A store that answers before it has asked for the body of an upload. */
async function decidingStore(t: TestContext, decide: RequestListener): Promise<string> {
  const server = createServer(decide).on("checkContinue", decide);
  t.after(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/object`;
}

test("a store that refuses a large upload gets no body, and its status is reported", async (t) => {
  let [requests, received] = [0, 0];
  const url = await decidingStore(t, (request, response) => {
    requests += 1;
    request.on("data", (chunk: Buffer) => (received += chunk.byteLength));
    response.writeHead(403).end();
  });
  const prepared = await prepareSource(BODY, deadline(t));
  await assert.rejects(TRANSFERS.upload(url, {}, prepared, deadline(t), FAST_RETRY), /status 403/);
  assert.deepEqual([requests, received], [1, 0]);
});

test("a store that does not ask for the body of a large upload gets it", async (t) => {
  let received = 0;
  const url = await decidingStore(t, (request, response) => {
    request.on("data", (chunk: Buffer) => (received += chunk.byteLength));
    request.on("end", () => response.end());
  });
  await TRANSFERS.upload(url, {}, await prepareSource(BODY, deadline(t)), deadline(t), FAST_RETRY);
  assert.equal(received, BODY.byteLength);
});

test("a large upload is repeated without `Expect` where the store or a proxy does not support it", async (t) => {
  let [requests, received] = [0, 0];
  const url = await decidingStore(t, (request, response) => {
    requests += 1;
    if (request.headers.expect !== undefined) {
      response.writeHead(417).end();
      return;
    }
    request.on("data", (chunk: Buffer) => (received += chunk.byteLength));
    request.on("end", () => response.end());
  });
  await TRANSFERS.upload(url, {}, await prepareSource(BODY, deadline(t)), deadline(t), undefined);
  assert.deepEqual([requests, received], [2, BODY.byteLength]);
});

test("the copy of a stream is removed when reading it fails", async (t) => {
  const temporary = await temporaryDirectory(t);
  let seen: string[] = [];
  const broken = new ReadableStream<Uint8Array>({
    async pull(controller) {
      // The copy exists after the first byte was written.
      if (seen.length === 0) controller.enqueue(new Uint8Array(1));
      seen = await readdir(temporary);
      if (seen.length > 0) controller.error(new Error("the sender left"));
    },
  });
  await assert.rejects(prepareSource(broken, deadline(t)), /the sender left/);
  assert.deepEqual([seen.length, await readdir(temporary)], [1, []]);
});
