/** Bodies over presigned URLs: exact lengths, digests compared, one connection for each transfer.
 *
 * The URL comes from the service and leads to the store. Redirects are not followed and proxies are not used.
 */

import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { type ClientRequest, type IncomingMessage, type RequestOptions, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { pipeline } from "node:stream/promises";

import type { Deadline } from "./deadline.js";
import { DrayageError, IntegrityError, isCertificateError, makeFault, UnavailableError } from "./faults.js";
import { maxAttemptsOf, type RetryPolicy, retryDelayMs } from "./options.js";
import { codeOf, replaceFile } from "./partial_file.js";
import { CHUNK_BYTES, type PreparedSource } from "./sources.js";
import type { Artifact } from "./v1/index.js";

/** Longest time without a byte before a transfer counts as broken. */
const MAX_SILENCE_MS = 30_000;
/** Longest wait for a store that says whether it wants a body. */
const CONTINUE_TIMEOUT_MS = 1_000;
/** Errors of the local file system, which another attempt would not change. */
const LOCAL_ERRORS = new Set(
  ["EACCES", "EDQUOT", "EFBIG", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOENT", "ENOSPC", "ENOTDIR", "EPERM", "EROFS"],
);

/** A transfer that may succeed in another attempt. */
class TransientTransferError extends Error {}

/** Uploads and downloads of one client. */
export class Transfers {
  readonly #storeCa: Buffer | undefined;
  readonly #maxSilenceMs: number;

  /** `storeCa`: authorities that sign the store's certificate; those of Node.js when unset. */
  constructor(storeCa: Buffer | undefined, maxSilenceMs = MAX_SILENCE_MS) {
    this.#storeCa = storeCa;
    this.#maxSilenceMs = maxSilenceMs;
  }

  /** PUTs a source. */
  async upload(
    url: string,
    headers: Record<string, string>,
    source: PreparedSource,
    deadline: Deadline,
    retry: RetryPolicy | undefined,
  ): Promise<void> {
    const isLarge = source.size > CHUNK_BYTES;
    await repeat(deadline, retry, async () => {
      let statusCode = await this.#put(url, headers, source, deadline, isLarge);
      // The store, or a proxy in front of it, does not support the expectation (RFC 9110, section 15.5.18).
      if (statusCode === 417 && isLarge) statusCode = await this.#put(url, headers, source, deadline, false);
      if (statusCode >= 500) throw new TransientTransferError(`status ${statusCode}`);
      if (![200, 201, 204].includes(statusCode)) throw refusal("upload", statusCode);
    });
  }

  /** GETs an artifact into memory. */
  async downloadBytes(
    url: string,
    artifact: Artifact | undefined,
    deadline: Deadline,
    retry: RetryPolicy | undefined,
  ): Promise<Uint8Array> {
    return repeat(deadline, retry, async () => {
      const parts: Uint8Array[] = [];
      for await (const chunk of this.#verifiedChunks(url, artifact, deadline)) parts.push(chunk);
      return Buffer.concat(parts);
    });
  }

  /** GETs an artifact into a file that appears only when every byte was compared. */
  async downloadFile(
    url: string,
    artifact: Artifact | undefined,
    target: string,
    deadline: Deadline,
    retry: RetryPolicy | undefined,
  ): Promise<void> {
    await replaceFile(target, (partial) =>
      repeat(deadline, retry, async () => {
        const file = await open(partial, "w", 0o600);
        try {
          for await (const chunk of this.#verifiedChunks(url, artifact, deadline)) await file.writeFile(chunk);
        } finally {
          await file.close();
        }
      }),
    );
  }

  /** GETs an artifact as a stream. The stream errors at its end if the digest differs, so its bytes are verified only
   * when it has closed. The request is not repeated after the first byte. */
  async downloadStream(
    url: string,
    artifact: Artifact | undefined,
    deadline: Deadline,
    retry: RetryPolicy | undefined,
  ): Promise<ReadableStream<Uint8Array>> {
    let request: ClientRequest | undefined;
    let chunks!: AsyncGenerator<Uint8Array>;
    let first: IteratorResult<Uint8Array> | undefined = await repeat(deadline, retry, () => {
      chunks = this.#verifiedChunks(url, artifact, deadline, (opened) => (request = opened));
      return chunks.next();
    });
    const finish = () => {
      deadline.end();
      // Not `chunks.return`, which would wait for a chunk that is being read.
      request?.destroy();
    };
    return new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          try {
            const { done, value } = first ?? (await chunks.next());
            first = undefined;
            if (!done) return controller.enqueue(value);
            finish();
            controller.close();
          } catch (error) {
            finish();
            controller.error(error instanceof DrayageError ? error : brokenTransfer(error));
          }
        },
        cancel: finish,
      },
      { highWaterMark: 0 },
    );
  }

  async *#verifiedChunks(
    url: string,
    artifact: Artifact | undefined,
    deadline: Deadline,
    onOpen: (request: ClientRequest) => void = () => undefined,
  ): AsyncGenerator<Uint8Array, undefined> {
    const { request, response } = this.#send("GET", url, {}, deadline);
    onOpen(request);
    request.end();
    try {
      const message = await response;
      const { statusCode = 0 } = message;
      if (statusCode >= 500) throw new TransientTransferError(`status ${statusCode}`);
      if (statusCode !== 200) throw refusal("download", statusCode);
      const [hash, size] = [createHash("sha256"), Number(artifact?.size ?? 0n)];
      let count = 0;
      for await (const chunk of this.#receivedChunks(message, request)) {
        count += chunk.byteLength;
        if (count > size) break;
        hash.update(chunk);
        yield chunk;
      }
      if (count < size) throw new TransientTransferError("the connection ended early");
      if (count > size || !hash.digest().equals(artifact?.sha256 ?? new Uint8Array())) throw mismatch();
      return undefined;
    } catch (error) {
      // Node.js reports a separate error for an aborted request.
      deadline.signal.throwIfAborted();
      throw error;
    } finally {
      request.destroy();
    }
  }

  /** The chunks of a response. Only the time for which a chunk is awaited counts as silence: a reader may pause. */
  async *#receivedChunks(message: IncomingMessage, request: ClientRequest): AsyncGenerator<Uint8Array, void> {
    // The timer of the socket also runs while the reader pauses.
    message.socket.setTimeout(0);
    const chunks: AsyncIterator<Uint8Array> = message[Symbol.asyncIterator]();
    for (;;) {
      const timer = setTimeout(() => request.destroy(silence()), this.#maxSilenceMs);
      const { done, value } = await chunks.next().finally(() => clearTimeout(timer));
      if (done) return;
      yield value;
    }
  }

  /** Sends a source, and returns the status of the response. With `expectsContinue` the store decides before the body is sent. */
  async #put(
    url: string,
    headers: Record<string, string>,
    source: PreparedSource,
    deadline: Deadline,
    expectsContinue: boolean,
  ): Promise<number> {
    const expectation = expectsContinue ? { expect: "100-continue" } : {};
    const head = { "content-length": String(source.size), ...headers, ...expectation };
    const { request, response } = this.#send("PUT", url, head, deadline);
    let sourceError: unknown;
    const send = async (): Promise<void> => {
      if (!expectsContinue || (await wantsBody(request, response))) {
        await pipeline(() => exactChunks(source, deadline), request);
      }
    };
    const sending = send().catch((error: unknown) => {
      if (isFinal(error)) sourceError = error;
    });
    // A store that refuses may respond before the body was read; its status decides then.
    const { statusCode = 0 } = await response.then(
      (message) => message.resume(),
      async (error: unknown) => {
        await sending;
        throw sourceError ?? error;
      },
    );
    request.destroy();
    return statusCode;
  }

  #send(
    method: string,
    url: string,
    headers: Record<string, string>,
    deadline: Deadline,
  ): { request: ClientRequest; response: Promise<IncomingMessage> } {
    const options: RequestOptions = { method, headers, agent: false, signal: deadline.signal, timeout: this.#maxSilenceMs };
    const isEncrypted = new URL(url).protocol === "https:";
    const trust = this.#storeCa === undefined ? {} : { ca: this.#storeCa };
    const request = isEncrypted ? requestHttps(url, { ...options, ...trust }) : requestHttp(url, options);
    request.on("timeout", () => request.destroy(silence()));
    const response = new Promise<IncomingMessage>((resolve, reject) => {
      request.on("response", resolve);
      // Stays attached: errors after the response would otherwise end the process.
      request.on("error", reject);
    });
    response.catch(() => undefined);
    return { request, response };
  }
}

/** Whether a store wants the body of a request with `Expect: 100-continue` (RFC 9110, section 10.1.1), which it also gets if it
 * sends nothing. A store that refuses closes the connection after its response. Node.js discards that response if it writes to
 * the connection before it has read it. */
async function wantsBody(request: ClientRequest, response: Promise<IncomingMessage>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const continued = new Promise<boolean>((resolve) => {
    request.once("continue", () => resolve(true));
    timer = setTimeout(() => resolve(true), CONTINUE_TIMEOUT_MS);
  });
  try {
    return await Promise.race([continued, response.then(() => false)]);
  } finally {
    clearTimeout(timer);
  }
}

/** The announced number of bytes of a source, even if the source grew; a source that shrank fails. */
async function* exactChunks(source: PreparedSource, deadline: Deadline): AsyncGenerator<Uint8Array> {
  let remaining = source.size;
  if (remaining === 0) return;
  for await (const chunk of source.open()) {
    deadline.signal.throwIfAborted();
    const part = chunk.subarray(0, remaining);
    remaining -= part.byteLength;
    yield part;
    if (remaining === 0) return;
  }
  throw new IntegrityError(
    makeFault("invalid_argument", "The file became shorter while it was uploaded.", { detail: "source_changed" }),
  );
}

/** Runs attempts until one succeeds, a final error occurs, or attempts or time are used up. */
async function repeat<Result>(
  deadline: Deadline,
  retry: RetryPolicy | undefined,
  attempt: () => Promise<Result>,
): Promise<Result> {
  for (let number = 1; ; number++) {
    try {
      deadline.remainingMs();
      return await attempt();
    } catch (error) {
      deadline.signal.throwIfAborted();
      if (isFinal(error)) throw error;
      if (isCertificateError(codeOf(error))) throw untrustedStore(error);
      const delayMs = retryDelayMs(retry, number, 0);
      if (number >= maxAttemptsOf(retry) || !deadline.allows(delayMs)) throw brokenTransfer(error);
      await deadline.wait(delayMs);
    }
  }
}

/** Whether another attempt would end with the same error. */
function isFinal(error: unknown): boolean {
  return error instanceof DrayageError || LOCAL_ERRORS.has(codeOf(error));
}

function silence(): TransientTransferError {
  return new TransientTransferError("no byte for too long");
}

function untrustedStore(cause: unknown): UnavailableError {
  return new UnavailableError(
    makeFault("unavailable", "The certificate of the store is not trusted.", {
      detail: "untrusted_certificate",
      advice: "Pass the authority that signs it as `storeCa`.",
    }),
    { cause },
  );
}

function brokenTransfer(cause: unknown): UnavailableError {
  return new UnavailableError(
    makeFault("unavailable", "The store could not be reached.", {
      detail: "transfer_failed",
      advice: "Try again in a moment.",
      retryable: true,
    }),
    { cause },
  );
}

function refusal(direction: "upload" | "download", status: number): UnavailableError {
  return new UnavailableError(
    makeFault("unavailable", `The store refused the ${direction} with status ${status}.`, {
      detail: `${direction}_refused`,
    }),
  );
}

function mismatch(): IntegrityError {
  return new IntegrityError(
    makeFault("unavailable", "The bytes that arrived are not those of the artifact.", {
      detail: "digest_mismatch",
      advice: "Fetch the file again; if it happens again, report it to the operator of the store.",
    }),
  );
}
