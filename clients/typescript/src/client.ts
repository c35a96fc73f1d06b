/** The client: the services of Drayage over gRPC. */

import { writeFile } from "node:fs/promises";
import { randomUUID } from "node:crypto";

import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";

import { InvalidParameterError } from "./faults.js";
import { wrongType } from "./fields.js";
import { Delivery, PublishedToolCall } from "./handles.js";
import { DeliveryReport, type Document, FetchedFile, IssuedTicket, ResolvedArguments, Ticket } from "./models.js";
import {
  claimOf,
  type ClientContext,
  type Operation,
  bytesOrClaimOf,
  runOperation,
  type Stored,
  type StoreSettings,
} from "./operation.js";
import { byteCount, type CallOptions, messageTime, readPem } from "./options.js";
import { pathBytes, readDocument, Sandbox, type SandboxPath } from "./sandbox.js";
import type { LocalSource } from "./sources.js";
import { Transfers } from "./transfers.js";
import { Connection, type ConnectionOptions } from "./transport.js";
import {
  type Claim,
  type Content,
  Deliveries,
  Egress,
  Files,
  type ReadAttachmentRequestSchema,
  type ResolveOptionsSchema,
  type Session,
  Sessions,
  TicketDirection,
  Tickets,
  ToolCalls,
} from "./v1/index.js";

/** How references in arguments are replaced. */
export interface ResolveSettings {
  /** Whether strings in nested objects and lists are resolved too. */
  readonly nested?: boolean;
  /** Most bytes of one file; the operator's default when unset. */
  readonly sizeLimitBytes?: number;
  /** Whether the app allows to fetch external URLs. When unset, the request contains no policy of the app. */
  readonly allowExternalUrls?: boolean;
}

/** Which part of a document is read, and how. */
export interface ReadSettings {
  /** Name in the reply, where its extension matters. */
  readonly name?: string;
  /** A part, such as `pages 3-5`, `sheet Budget rows 1001-2000` or `lines 1-200`. */
  readonly range?: string;
  /** Shows only passages that contain this text. */
  readonly find?: string;
  /** Whether a model summarizes even what would fit. */
  readonly summarize?: boolean;
  /** What a summary must preserve. */
  readonly focus?: string;
  /** Whether to show text that is hidden from a person who opens the document. */
  readonly showHidden?: boolean;
  /** The file of an archive that is to be read, by its path in the listing. */
  readonly member?: string;
}

/** The content of a delivery. */
export interface SendSettings {
  /** Files of the session's sandbox. */
  readonly paths?: readonly SandboxPath[];
  /** Local and stored files; a text is the path of a local file. */
  readonly files?: readonly (LocalSource | Stored)[];
  /** Text that is sent with the files. */
  readonly message?: string;
  readonly asVoice?: boolean;
  readonly asDocument?: boolean;
  readonly spoiler?: boolean;
  /** Turn of the agent, for which the same paths are not sent again. */
  readonly turn?: string;
}

/** The sandbox and the chat of a session. */
export interface SessionSettings {
  /** Sandbox, such as `docker:web`. */
  readonly sandbox?: string;
  /** Platform and chat, such as `telegram:42`. */
  readonly chat?: string;
  /** Directory in the sandbox; the sandbox's own when unset. */
  readonly workingDirectory?: SandboxPath;
}

/** Conditions of an upload through a ticket, and its destination. */
export interface UploadTicketSettings {
  /** Most bytes; the most of one ticket when unset. */
  readonly maxBytes?: number;
  /** Exact size in bytes, where it is known. */
  readonly size?: number;
  /** Media type or pattern such as `image/*`. */
  readonly mediaType?: string;
  /** SHA-256 that the content must have, hexadecimal. */
  readonly sha256?: string;
  /** File name for people. */
  readonly name?: string;
  /** Destination to which the file is forwarded: a directory in the session's sandbox (empty for its uploads), or the
   * session's chat. */
  readonly to?: { readonly sandboxDirectory: string } | { readonly chatMessage: string };
  /** Seconds until the ticket ends, 3600 unless set and at most 43200. */
  readonly lifetimeSeconds?: number;
}

/** Options of a download ticket. */
export interface DownloadTicketSettings {
  /** File name for people. */
  readonly name?: string;
  /** Seconds until the ticket ends, 3600 unless set and at most 43200. */
  readonly lifetimeSeconds?: number;
}

/** Calls the services of Drayage. */
export class Dray {
  readonly #target: string;
  readonly #context: ClientContext;
  readonly #options: ConnectionOptions & CallOptions;

  /** `target`: host and port, such as `files.example.org:50051`. `context` is that of another client, which
   * `withOptions` passes. */
  constructor(target: string, options: ConnectionOptions & CallOptions = {}, context?: ClientContext) {
    this.#target = target;
    this.#options = options;
    this.#context = context ?? {
      connection: new Connection(target, options),
      transfers: new Transfers(readPem(options.storeCa)),
    };
  }

  /** The same client with other options: `dray.withOptions({ timeoutMs: 5_000, operationId: "…" })`. It shares the
   * connections. */
  withOptions(changes: CallOptions): Dray {
    return new Dray(this.#target, { ...this.#options, ...changes }, this.#context);
  }

  /** Closes the connections, which clients of `withOptions` share. */
  close(): void {
    this.#context.connection.close();
  }

  /** Sends any request: `dray.call(v1.Reading.method.buildContext, { … })`. */
  call<Request extends DescMessage, Reply extends DescMessage>(
    method: DescMethodUnary<Request, Reply>,
    request: MessageInitShape<Request>,
  ): Promise<MessageShape<Reply>> {
    return this.#run((operation) => operation.call(method, request));
  }

  /** Replaces `file:{base64|text|url}::…` arguments of a tool call by their content. A string must be JSON text. */
  resolve(
    toolArguments: Record<string, unknown> | string,
    settings: ResolveSettings & { tool?: string; dialApiKey?: string } = {},
  ): Promise<ResolvedArguments> {
    return this.#run(async (operation) => {
      const { tool = "", dialApiKey } = settings;
      const { outcome } = await operation.call(Files.method.resolve, {
        arguments: await operation.contentOf(argumentsText(toolArguments), "arguments.json"),
        options: resolveOptions(settings),
        ...(dialApiKey === undefined ? {} : { credentials: { apiKey: dialApiKey } }),
        tool,
        presign: true,
      });
      if (outcome.case === "invalid") throw new InvalidParameterError(outcome.value);
      return operation.openArguments(outcome.value);
    });
  }

  /** Publishes a tool call as work that is not lost. Returns when the stream has stored it. */
  publishToolCall(
    tool: string,
    toolArguments: Record<string, unknown> | string,
    settings: ResolveSettings & { toolCallId?: string } = {},
  ): Promise<PublishedToolCall> {
    return this.#run(async (operation) => {
      const accepted = await operation.call(ToolCalls.method.submit, {
        toolCallId: settings.toolCallId ?? `call-${randomUUID()}`,
        tool,
        arguments: await operation.contentOf(argumentsText(toolArguments), "arguments.json"),
        options: resolveOptions(settings),
      });
      return new PublishedToolCall(this.#context, this.#options, accepted.operationId, accepted.duplicate);
    });
  }

  /** A tool call that was published before, for three days after its end. */
  toolCall(operationId: string): PublishedToolCall {
    return new PublishedToolCall(this.#context, this.#options, operationId, true);
  }

  /** Fetches a resource of the web, within the operator's policy. */
  fetch(url: string, settings: Omit<ResolveSettings, "nested"> = {}): Promise<FetchedFile> {
    return this.#run(async (operation) => {
      const { allowExternalUrls: enabled, sizeLimitBytes = 0 } = settings;
      const policy = enabled === undefined ? {} : { appPolicy: { enabled } };
      return new FetchedFile(
        await operation.call(Egress.method.fetch, { url, ...policy, sizeLimitBytes: byteCount("sizeLimitBytes", sizeLimitBytes) }),
      );
    });
  }

  /** Reads a document as Markdown: a URL, a DIAL file (`files/…`), a path of the service's workspace, or a stored file.
   * */
  read(source: string | Stored, settings: ReadSettings = {}): Promise<Document> {
    return this.#run((operation) => readDocument(operation, documentSource(source), settings));
  }

  /** Puts a local file, bytes, a blob or a stream into the store; with `session` also into its sandbox, before its next
   * tool call. */
  store(source: LocalSource, settings: StoreSettings = {}): Promise<Claim> {
    return this.#run((operation) => operation.store(source, settings));
  }

  /** The bytes of a stored file, compared with its digest. */
  readBytes(stored: Stored | Content): Promise<Uint8Array> {
    return this.#run((operation) => operation.readBytes(stored));
  }

  /** The bytes of a stored file as a stream, within the timeout of the client. It errors at its end if the digest
   * differs: the bytes are verified only when the stream has closed. */
  open(stored: Stored | Content): Promise<ReadableStream<Uint8Array>> {
    return this.#run((operation) => operation.openStream(stored));
  }

  /** Writes a stored file to a local path, which appears only when every byte was compared. */
  download(stored: Stored | Content, to: string): Promise<string> {
    return this.#run(async (operation) => {
      const bytesOrClaim = bytesOrClaimOf(stored);
      if (bytesOrClaim instanceof Uint8Array) await writeFile(to, bytesOrClaim);
      else await operation.downloadFile(bytesOrClaim, to);
      return to;
    });
  }

  /** A sandbox by its address, such as `docker:web`. The operator lists the tenants that may name sandboxes. */
  sandbox(address: string): Sandbox {
    return new Sandbox((body) => this.#run(body), { case: "address", value: address });
  }

  /** The sandbox that is bound to a session. */
  sessionSandbox(session: string): Sandbox {
    return new Sandbox((body) => this.#run(body), { case: "session", value: session });
  }

  /** Binds a sandbox, a chat, or both to a session. */
  bindSession(session: string, settings: SessionSettings): Promise<Session> {
    return this.#run(async (operation) => {
      const { sandbox = "", chat = "", workingDirectory = "" } = settings;
      return operation.call(Sessions.method.bind, {
        session,
        sandbox,
        ...(chat === "" ? {} : { chat: chatTarget(chat) }),
        workingDirectory: pathBytes(workingDirectory),
      });
    });
  }

  /** Sends files to the session's chat. */
  send(session: string, settings: SendSettings): Promise<Delivery> {
    return this.#run(async (operation) => {
      const { paths = [], files = [], message = "", turn = "" } = settings;
      if (!Array.isArray(paths)) throw wrongType("paths", "a list", paths);
      if (!Array.isArray(files)) throw wrongType("files", "a list", files);
      const claims: Claim[] = [];
      for (const file of files) claims.push(await operation.claimFor(file));
      const { asVoice = false, asDocument = false, spoiler = false } = settings;
      const accepted = await operation.call(Deliveries.method.sendFile, {
        session,
        paths: paths.map(pathBytes),
        message,
        flags: { asVoice, asDocument, spoiler },
        claims,
        turn,
      });
      return new Delivery(this.#context, this.#options, accepted.deliveryId, accepted.duplicate);
    });
  }

  /** A delivery that was sent before. */
  delivery(deliveryId: string): Delivery {
    return new Delivery(this.#context, this.#options, deliveryId, true);
  }

  /** Deliveries of the tenant, newest first. */
  receipts(settings: { session?: string; openOnly?: boolean; limit?: number } = {}): Promise<DeliveryReport[]> {
    return this.#run(async (operation) => {
      const { session = "", openOnly = false, limit = 0 } = settings;
      const reply = await operation.call(Deliveries.method.receipts, { session, openOnly, limit });
      return reply.reports.map((report) => new DeliveryReport(report));
    });
  }

  /** Issues a URL for one upload of one file. */
  uploadTicket(session: string, settings: UploadTicketSettings = {}): Promise<IssuedTicket> {
    return this.#run(async (operation) => {
      const { maxBytes = 0, size, mediaType = "", sha256 = "", name = "", to, lifetimeSeconds = 0 } = settings;
      return new IssuedTicket(
        await operation.call(Tickets.method.issue, {
          session,
          direction: TicketDirection.UPLOAD,
          maxBytes: byteCount("maxBytes", maxBytes),
          ...(size === undefined ? {} : { size: byteCount("size", size) }),
          mediaType,
          sha256: digestBytes(sha256),
          name,
          ...(to === undefined ? {} : { destination: { destination: destinationOf(to) } }),
          lifetimeS: messageTime("lifetimeSeconds", lifetimeSeconds),
        }),
      );
    });
  }

  /** Issues a URL for one download of one file: a path in the session's sandbox, whose file must not change before the
   * download, or a stored file. */
  downloadTicket(session: string, source: string | Stored, settings: DownloadTicketSettings = {}): Promise<IssuedTicket> {
    return this.#run(async (operation) => {
      const { name = "", lifetimeSeconds = 0 } = settings;
      const artifact = typeof source === "string" ? undefined : claimOf(source).artifact;
      return new IssuedTicket(
        await operation.call(Tickets.method.issue, {
          session,
          direction: TicketDirection.DOWNLOAD,
          name: name === "" ? (artifact?.name ?? "") : name,
          lifetimeS: messageTime("lifetimeSeconds", lifetimeSeconds),
          ...(typeof source === "string"
            ? { sandboxPath: source }
            : { sha256: artifact?.sha256 ?? new Uint8Array(), mediaType: artifact?.mediaType ?? "" }),
        }),
      );
    });
  }

  /** Tickets of a session, newest first: those that are open, and those that moved bytes within a day. */
  tickets(session: string, settings: { limit?: number } = {}): Promise<Ticket[]> {
    return this.#run(async (operation) => {
      const reply = await operation.call(Tickets.method.list, { session, limit: settings.limit ?? 0 });
      return reply.tickets.map((ticket) => new Ticket(ticket));
    });
  }

  /** One ticket. */
  ticket(ticketId: string): Promise<Ticket> {
    return this.#run(async (operation) => new Ticket(await operation.call(Tickets.method.inspect, { ticketId })));
  }

  /** Ends a ticket and removes the bytes that were uploaded so far. A used ticket stays used. */
  revokeTicket(ticketId: string): Promise<Ticket> {
    return this.#run(async (operation) => new Ticket(await operation.call(Tickets.method.revoke, { ticketId })));
  }

  #run<Result>(body: (operation: Operation) => Promise<Result>): Promise<Result> {
    return runOperation(this.#context, this.#options, body);
  }
}

/** The bytes of a hexadecimal SHA-256. `Buffer.from` would make an empty one of a text that is not hexadecimal, and the
 * ticket would take any content. */
function digestBytes(sha256: string): Uint8Array {
  if (!/^([0-9a-fA-F]{64})?$/.test(sha256)) throw new TypeError("`sha256` is not 64 hexadecimal digits");
  return Buffer.from(sha256, "hex");
}

/** The platform and the chat of a text such as `telegram:42`. */
function chatTarget(text: string): { platform: string; chat: string } {
  const [platform = "", ...rest] = text.split(":");
  const chat = rest.join(":");
  if (platform === "" || chat === "") throw new TypeError("`chat` is a platform and a chat, such as `telegram:42`");
  return { platform, chat };
}

function destinationOf(to: NonNullable<UploadTicketSettings["to"]>) {
  if (typeof to !== "object") throw new TypeError("`to` is `{ chatMessage }` or `{ sandboxDirectory }`");
  return "chatMessage" in to
    ? ({ case: "chatMessage", value: to.chatMessage } as const)
    : ({ case: "sandboxDirectory", value: to.sandboxDirectory } as const);
}

/** Arguments as JSON text. A string is used without changes. */
export function argumentsText(toolArguments: Record<string, unknown> | string): Uint8Array {
  if (typeof toolArguments !== "string" && (typeof toolArguments !== "object" || toolArguments === null || Array.isArray(toolArguments))) {
    throw wrongType("toolArguments", "an object or JSON text", toolArguments);
  }
  return Buffer.from(typeof toolArguments === "string" ? toolArguments : JSON.stringify(toolArguments), "utf8");
}

/** The message of these settings for requests. */
export function resolveOptions(settings: ResolveSettings): MessageInitShape<typeof ResolveOptionsSchema> {
  const { nested = false, sizeLimitBytes = 0, allowExternalUrls: enabled } = settings;
  const policy = enabled === undefined ? {} : { externalUrlFetch: { enabled } };
  return { nested, sizeLimitBytes: byteCount("sizeLimitBytes", sizeLimitBytes), ...policy };
}

type DocumentSourceInit = NonNullable<MessageInitShape<typeof ReadAttachmentRequestSchema>["source"]>;

function documentSource(source: string | Stored): DocumentSourceInit {
  if (typeof source !== "string") return { source: { case: "claim", value: claimOf(source) } };
  const isUrl = source.includes("://") || source.startsWith("files/");
  return { source: { case: isUrl ? "url" : "path", value: source } };
}
