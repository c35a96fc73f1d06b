/** Sources of the bytes of an upload. Size and digest are known before the first byte is sent. */

import { createHash, randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import type { Deadline } from "./deadline.js";
import { wrongType } from "./fields.js";

/** Bytes read at a time. */
export const CHUNK_BYTES = 1 << 20;

/** Bytes, a blob, a stream of the web or of Node.js, or the path of a local file. A stream is copied into a temporary file
 * first, because the store needs size and digest before the bytes. */
export type LocalSource =
  | string
  | URL
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>;

/** A source that can be read more than once, since uploads are repeated. */
export interface PreparedSource {
  readonly size: number;
  /** SHA-256, 32 bytes. */
  readonly sha256: Uint8Array;
  /** File name, where the source has one; otherwise empty. */
  readonly name: string;
  /** Reads the source from its start. */
  open(): AsyncIterable<Uint8Array>;
  /** Removes the temporary file, if the source has one. */
  dispose(): Promise<void>;
}

/** Whether a value is a local source and not a stored file. */
export function isLocalSource(value: unknown): value is LocalSource {
  return (
    typeof value === "string" ||
    value instanceof URL ||
    value instanceof Uint8Array ||
    value instanceof ArrayBuffer ||
    value instanceof Blob ||
    value instanceof ReadableStream ||
    isAsyncIterable(value)
  );
}

/** Hashes a source. */
export async function prepareSource(source: LocalSource, deadline: Deadline): Promise<PreparedSource> {
  if (source instanceof Uint8Array) return hashSource("", () => chunksOf(source), deadline);
  if (source instanceof Blob) {
    const name = source instanceof File ? source.name : "";
    return hashSource(name, () => readStream(source.stream()), deadline);
  }
  if (source instanceof ArrayBuffer) return prepareSource(new Uint8Array(source), deadline);
  if (source instanceof ReadableStream || isAsyncIterable(source)) return spoolStream(source, deadline);
  const path = source instanceof URL ? fileURLToPath(source) : source;
  if ((await stat(path)).isFIFO()) {
    throw new TypeError(`${path} is a pipe, which cannot be read twice: give \`createReadStream(path)\``);
  }
  return hashSource(basename(path), () => readFile(path), deadline);
}

async function hashSource(
  name: string,
  open: () => AsyncIterable<Uint8Array>,
  deadline: Deadline,
  dispose: () => Promise<void> = async () => {},
): Promise<PreparedSource> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const chunk of open()) {
    deadline.signal.throwIfAborted();
    hash.update(chunk);
    size += chunk.byteLength;
  }
  return { size, sha256: hash.digest(), name, open, dispose };
}

function isAsyncIterable(value: unknown): value is AsyncIterable<Uint8Array> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}

async function spoolStream(
  source: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>,
  deadline: Deadline,
): Promise<PreparedSource> {
  const path = join(tmpdir(), `drayage-${randomUUID()}`);
  const dispose = () => rm(path, { force: true });
  try {
    // `wx` fails for an existing file, which another user could have created.
    const file = createWriteStream(path, { flags: "wx", mode: 0o600 });
    await pipeline(streamChunks(source, deadline), file, { signal: deadline.signal });
    return await hashSource("", () => readFile(path), deadline, dispose);
  } catch (error) {
    await dispose();
    deadline.signal.throwIfAborted();
    throw error;
  }
}

function readFile(path: string): AsyncIterable<Uint8Array> {
  return createReadStream(path, { highWaterMark: CHUNK_BYTES });
}

async function* chunksOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.byteLength; start += CHUNK_BYTES) {
    yield bytes.subarray(start, start + CHUNK_BYTES);
    // A loop over bytes in memory would keep timers and other requests waiting until its end.
    await setImmediate();
  }
}

/** The chunks of a stream, each awaited until the deadline. The stream is cancelled when its reader stops early. */
async function* streamChunks(
  source: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>,
  deadline: Deadline,
): AsyncGenerator<Uint8Array> {
  const { next, cancel } = openStream(source);
  try {
    for (;;) {
      const { done, value } = await deadline.race<{ done?: boolean; value?: unknown }>(next());
      if (done) return;
      // A file would take numbers and objects for an error of the program, and end the process.
      if (typeof value !== "string" && !(value instanceof Uint8Array)) throw wrongType("chunk", "bytes", value);
      yield value as Uint8Array;
    }
  } finally {
    cancel();
  }
}

/** Reads a stream. `cancel` also ends one that is silent: an iterator of the language would wait for its next chunk. */
function openStream(source: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>): {
  next: () => Promise<{ done?: boolean; value?: unknown }>;
  cancel: () => void;
} {
  const ignore = (): void => undefined;
  if (source instanceof ReadableStream) {
    const reader = source.getReader();
    return { next: () => reader.read(), cancel: () => void reader.cancel().catch(ignore) };
  }
  const iterator = source[Symbol.asyncIterator]();
  const cancel = (): void => {
    if (source instanceof Readable) source.destroy();
    else void Promise.resolve(iterator.return?.()).catch(ignore);
  };
  return { next: () => iterator.next(), cancel };
}

/** The chunks of the stream of a blob, which is cancelled when the reader stops early. */
async function* readStream(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  let isFinished = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      isFinished = done;
      if (done) return;
      yield value;
    }
  } finally {
    if (!isFinished) await reader.cancel();
    reader.releaseLock();
  }
}
