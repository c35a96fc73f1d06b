/** One operation of the client: its requests and transfers share a deadline, and their ids are derived from one id. */

import {
  create,
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  isMessage,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";

import { Deadline } from "./deadline.js";
import { checkFields } from "./fields.js";
import { FetchedFile, ResolvedArguments, SandboxFile } from "./models.js";
import { auxiliaryId, type CallOptions, operationIdOf, timeoutOf } from "./options.js";
import { isLocalSource, type LocalSource, prepareSource } from "./sources.js";
import type { Transfers } from "./transfers.js";
import type { Connection } from "./transport.js";
import {
  Artifacts,
  type Claim,
  ClaimSchema,
  type CommandOutput,
  type Content,
  ContentSchema,
  Deliveries,
  type ResolvedArguments as ResolvedArgumentsMessage,
} from "./v1/index.js";
import { MAX_INLINE_BYTES } from "./v1/limits.js";

/** Name and media type of arguments as a file. */
const ARGUMENTS_NAME = "arguments.json";
const ARGUMENTS_MEDIA_TYPE = "application/json";

/** A file in the store, or the result of an operation that contains one. */
export type Stored = Claim | SandboxFile | FetchedFile | ResolvedArguments;

/** Name, media type and session of a file for the store. */
export interface StoreSettings {
  /** Name for people; that of a local file when unset. */
  readonly name?: string;
  readonly mediaType?: string;
  /** Session into whose sandbox the file also goes, before its next tool call. */
  readonly session?: string;
}

/** The connections that all operations of a client share. */
export interface ClientContext {
  readonly connection: Connection;
  readonly transfers: Transfers;
}

/** Runs an operation within the deadline of the options. */
export async function runOperation<Result>(
  context: ClientContext,
  options: CallOptions,
  body: (operation: Operation) => Promise<Result>,
): Promise<Result> {
  const operation = new Operation(context, options);
  try {
    return await body(operation);
  } catch (error) {
    operation.deadline.end();
    throw error;
  } finally {
    if (!operation.outlivesCall) operation.deadline.end();
  }
}

/** A running operation. */
export class Operation {
  readonly deadline: Deadline;
  /** Whether a stream that was returned still runs under the deadline. */
  outlivesCall = false;
  readonly #context: ClientContext;
  readonly #options: CallOptions;
  readonly #operationId: string;
  #isIdUsed = false;
  #auxiliaryCount = 0;

  constructor(context: ClientContext, options: CallOptions) {
    this.#context = context;
    this.#options = options;
    this.#operationId = operationIdOf(options);
    this.deadline = new Deadline(timeoutOf(options), options.signal);
  }

  /** Sends the main request of the operation. A further request gets an id that is derived from the first. */
  call<Request extends DescMessage, Reply extends DescMessage>(
    method: DescMethodUnary<Request, Reply>,
    request: MessageInitShape<Request>,
  ): Promise<MessageShape<Reply>> {
    if (this.#isIdUsed) return this.#callAuxiliary(method, request);
    this.#isIdUsed = true;
    return this.#send(method, request, this.#operationId);
  }

  /** As `call`, for a request that removes a path: one that a repetition does not find was removed by an earlier attempt. */
  callRemoving<Request extends DescMessage, Reply extends DescMessage>(
    method: DescMethodUnary<Request, Reply>,
    request: MessageInitShape<Request>,
  ): Promise<MessageShape<Reply>> {
    checkFields(method.input, request);
    const { connection } = this.#context;
    return connection.call(method, request, this.#operationId, this.#options, this.deadline, true);
  }

  /** Sends the main request of the operation. The messages of its reply are subject to the deadline of the operation, and
   * end with one for which `isLast` holds. */
  stream<Request extends DescMessage, Reply extends DescMessage>(
    method: DescMethodServerStreaming<Request, Reply>,
    request: MessageInitShape<Request>,
    isLast: (message: MessageShape<Reply>) => boolean,
  ): AsyncGenerator<MessageShape<Reply>, void, undefined> {
    checkFields(method.input, request);
    this.outlivesCall = true;
    const { connection } = this.#context;
    return connection.stream(method, request, this.#operationId, this.#options, this.deadline, isLast);
  }

  /** Puts a source into the store. */
  async store(source: LocalSource, settings: StoreSettings): Promise<Claim> {
    const prepared = await prepareSource(source, this.deadline);
    try {
      const upload = await this.#callAuxiliary(Deliveries.method.prepareUpload, {
        session: settings.session ?? "",
        name: settings.name || prepared.name || "file",
        size: BigInt(prepared.size),
        sha256: prepared.sha256,
        mediaType: settings.mediaType ?? "",
      });
      const headers = Object.fromEntries(upload.headers.map(({ name, value }) => [name, value]));
      const { transfers } = this.#context;
      await transfers.upload(upload.url?.url ?? "", headers, prepared, this.deadline, this.#options.retry);
      const { uploadId } = upload;
      const finished = await this.#callAuxiliary(Deliveries.method.finishUpload, { uploadId });
      return finished.claim ?? create(ClaimSchema);
    } finally {
      await prepared.dispose();
    }
  }

  /** Arguments as content of a message: inline up to `MAX_INLINE_BYTES`, otherwise stored, with a claim. */
  async contentOf(bytes: Uint8Array): Promise<Content> {
    if (bytes.byteLength <= MAX_INLINE_BYTES) {
      return create(ContentSchema, { body: { case: "inline", value: bytes } });
    }
    const value = await this.store(bytes, { name: ARGUMENTS_NAME, mediaType: ARGUMENTS_MEDIA_TYPE });
    return create(ContentSchema, { body: { case: "claim", value } });
  }

  /** The claim of a stored file, or of a local source that is stored now. */
  async claimFor(source: LocalSource | Stored, name = ""): Promise<Claim> {
    return isLocalSource(source) ? this.store(source, { name }) : this.claimOf(source, name);
  }

  /** The claim of a stored file. Content that came in a message is stored now. */
  async claimOf(stored: Stored, name = ""): Promise<Claim> {
    const bytesOrClaim = bytesOrClaimOf(stored);
    if (!(bytesOrClaim instanceof Uint8Array)) return bytesOrClaim;
    const labels = labelsOf(stored);
    return this.store(bytesOrClaim, { name: name || labels.name, mediaType: labels.mediaType });
  }

  /** The bytes of a file, from the message or from the store. */
  async readBytes(stored: Stored | Content): Promise<Uint8Array> {
    const bytesOrClaim = bytesOrClaimOf(stored);
    if (bytesOrClaim instanceof Uint8Array) return bytesOrClaim;
    const url = await this.#sign(bytesOrClaim);
    return this.#context.transfers.downloadBytes(url, bytesOrClaim.artifact, this.deadline, this.#options.retry);
  }

  /** The complete kept output of a program, from the reply or from the store. */
  async readOutput(output: CommandOutput | undefined): Promise<Uint8Array> {
    if (output?.claim === undefined) return output?.head ?? new Uint8Array();
    return this.readBytes(output.claim);
  }

  /** The bytes of a file as a stream that runs under the deadline of the operation. */
  async openStream(stored: Stored | Content): Promise<ReadableStream<Uint8Array>> {
    const bytesOrClaim = bytesOrClaimOf(stored);
    if (bytesOrClaim instanceof Uint8Array) return new Blob([new Uint8Array(bytesOrClaim)]).stream();
    const url = await this.#sign(bytesOrClaim);
    const { transfers } = this.#context;
    const stream = await transfers.downloadStream(url, bytesOrClaim.artifact, this.deadline, this.#options.retry);
    this.outlivesCall = true;
    return stream;
  }

  /** Writes a stored file to a local path. */
  async downloadFile(claim: Claim, target: string): Promise<void> {
    const url = await this.#sign(claim);
    await this.#context.transfers.downloadFile(url, claim.artifact, target, this.deadline, this.#options.retry);
  }

  /** Resolved arguments with their content, from the message or from the store. */
  async openArguments(message: ResolvedArgumentsMessage | undefined): Promise<ResolvedArguments> {
    if (message?.arguments === undefined) throw new TypeError("the reply has no arguments");
    const bytesOrClaim = bytesOrClaimOf(message.arguments);
    if (bytesOrClaim instanceof Uint8Array) return new ResolvedArguments(message, bytesOrClaim);
    const url = message.url?.url || (await this.#sign(bytesOrClaim));
    const { transfers } = this.#context;
    const bytes = await transfers.downloadBytes(url, bytesOrClaim.artifact, this.deadline, this.#options.retry);
    return new ResolvedArguments(message, bytes);
  }

  async #sign(claim: Claim): Promise<string> {
    return (await this.#callAuxiliary(Artifacts.method.open, { claim })).url;
  }

  /** Sends a request that only prepares or completes the main one. */
  #callAuxiliary<Request extends DescMessage, Reply extends DescMessage>(
    method: DescMethodUnary<Request, Reply>,
    request: MessageInitShape<Request>,
  ): Promise<MessageShape<Reply>> {
    this.#auxiliaryCount++;
    return this.#send(method, request, auxiliaryId(this.#operationId, this.#auxiliaryCount));
  }

  #send<Request extends DescMessage, Reply extends DescMessage>(
    method: DescMethodUnary<Request, Reply>,
    request: MessageInitShape<Request>,
    operationId: string,
  ): Promise<MessageShape<Reply>> {
    checkFields(method.input, request);
    return this.#context.connection.call(method, request, operationId, this.#options, this.deadline);
  }
}

/** Name and media type of a result whose content came in a message; empty where they are not known. */
export function labelsOf(stored: Stored): { name: string; mediaType: string } {
  if (stored instanceof FetchedFile) return { name: stored.name, mediaType: stored.mediaType };
  if (stored instanceof ResolvedArguments) return { name: ARGUMENTS_NAME, mediaType: ARGUMENTS_MEDIA_TYPE };
  return { name: "", mediaType: "" };
}

/** The bytes of stored content if the message contains them, otherwise their claim. */
export function bytesOrClaimOf(stored: Stored | Content): Claim | Uint8Array {
  if (isMessage(stored, ClaimSchema)) return stored;
  if (stored instanceof SandboxFile) {
    if (stored.claim === undefined) throw new TypeError("the reply has no claim");
    return stored.claim;
  }
  let content: Content | undefined;
  if (stored instanceof FetchedFile) content = stored.content;
  else if (stored instanceof ResolvedArguments) content = stored.message.arguments;
  else if (isMessage(stored, ContentSchema)) content = stored;
  else throw new TypeError("neither a local source nor a stored file: give a path, bytes, a stream, or a result of the client");
  const body = content?.body;
  return body?.case === undefined ? new Uint8Array() : body.value;
}
