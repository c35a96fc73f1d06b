/** The client: the services of Drayage over gRPC. */

import { writeFile } from "node:fs/promises";
import { randomUUID } from "node:crypto";

import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";

import { InvalidParameterError } from "./faults.js";
import { wrongType } from "./fields.js";
import { Delivery, PublishedToolCall } from "./handles.js";
import { DeliveryReport, type Document, FetchedFile, IssuedTicket, ResolvedArguments, Ticket } from "./models.js";
import {
  type ClientContext,
  type Operation,
  bytesOrClaimOf,
  labelsOf,
  runOperation,
  type Stored,
  type StoreSettings,
} from "./operation.js";
import { CALL_OPTIONS, checkNestedOptionNames, checkOptionNames } from "./option_names.js";
import { byteCount, type CallOptions, checkId, checkToolNames, messageTime, readPem } from "./options.js";
import { replaceFile } from "./partial_file.js";
import { pathBytes, readDocument, Sandbox } from "./sandbox.js";
import type { LocalSource } from "./sources.js";
import { Transfers } from "./transfers.js";
import {
  CLIENT_OPTIONS,
  DOWNLOAD_TICKET_SETTINGS,
  type DownloadTicketSettings,
  FETCH_SETTINGS,
  type FetchSettings,
  LIST_TICKETS_SETTINGS,
  type ListTicketsSettings,
  type ReadSettings,
  RECEIPTS_SETTINGS,
  type ReceiptsSettings,
  RESOLVE_CALL_SETTINGS,
  type ResolveCallSettings,
  type ResolveSettings,
  SEND_SETTINGS,
  type SendSettings,
  SESSION_SETTINGS,
  type SessionSettings,
  STORE_SETTINGS,
  TOOL_CALL_SETTINGS,
  type ToolCallSettings,
  UPLOAD_TICKET_SETTINGS,
  type UploadTicketSettings,
} from "./settings.js";
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

/** Calls the services of Drayage. */
export class Dray {
  readonly #target: string;
  readonly #context: ClientContext;
  readonly #options: ConnectionOptions & CallOptions;

  /** `target`: host and port, such as `files.example.org:50051`. `context` is that of another client, which
   * `withOptions` passes. */
  constructor(target: string, options: ConnectionOptions & CallOptions = {}, context?: ClientContext) {
    checkOptionNames("options", options, CLIENT_OPTIONS);
    checkNestedOptionNames(options);
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
    checkOptionNames("options", changes, CALL_OPTIONS);
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
    return this.#run(async (operation) => {
      if (typeof method?.input !== "object") throw wrongType("method", "a method of a service (`v1.Files.method.resolve`)", method);
      if (typeof request !== "object" || request === null) throw wrongType("request", "an object", request);
      return operation.call(method, request);
    });
  }

  /** Replaces `file:{base64|text|url}::…` arguments of a tool call by their content. A string must be JSON text. */
  resolve(
    toolArguments: Record<string, unknown> | string,
    settings: ResolveCallSettings = {},
  ): Promise<ResolvedArguments> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, RESOLVE_CALL_SETTINGS);
      const { tool = "", dialApiKey } = settings;
      const { outcome } = await operation.call(Files.method.resolve, {
        arguments: await operation.contentOf(argumentsText(toolArguments)),
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
    settings: ToolCallSettings = {},
  ): Promise<PublishedToolCall> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, TOOL_CALL_SETTINGS);
      checkToolNames(tool, settings.toolCallId);
      const accepted = await operation.call(ToolCalls.method.submit, {
        toolCallId: settings.toolCallId ?? `call-${randomUUID()}`,
        tool,
        arguments: await operation.contentOf(argumentsText(toolArguments)),
        options: resolveOptions(settings),
      });
      return new PublishedToolCall(this.#context, this.#options, accepted.operationId, accepted.duplicate);
    });
  }

  /** A tool call that was published before, for three days after its end. */
  toolCall(operationId: string): PublishedToolCall {
    return new PublishedToolCall(this.#context, this.#options, checkId("operationId", operationId), true);
  }

  /** Fetches a resource of the web, within the operator's policy. */
  fetch(url: string, settings: FetchSettings = {}): Promise<FetchedFile> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, FETCH_SETTINGS);
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
    return this.#run((operation) => {
      const name = settings?.name || (typeof source === "string" ? "" : labelsOf(source).name);
      return readDocument(operation, documentSource(source), name === "" ? settings : { ...settings, name });
    });
  }

  /** Puts a local file, bytes, a blob or a stream into the store; with `session` also into its sandbox, before its next
   * tool call. */
  store(source: LocalSource, settings: StoreSettings = {}): Promise<Claim> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, STORE_SETTINGS);
      return operation.store(source, settings);
    });
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
      if (bytesOrClaim instanceof Uint8Array) {
        await replaceFile(to, (partial) => writeFile(partial, bytesOrClaim, { mode: 0o600 }));
      } else await operation.downloadFile(bytesOrClaim, to);
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
      checkOptionNames("settings", settings, SESSION_SETTINGS);
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
      checkOptionNames("settings", settings, SEND_SETTINGS);
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
    return new Delivery(this.#context, this.#options, checkId("deliveryId", deliveryId), true);
  }

  /** Deliveries of the tenant, newest first. */
  receipts(settings: ReceiptsSettings = {}): Promise<DeliveryReport[]> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, RECEIPTS_SETTINGS);
      const { session = "", openOnly = false, limit = 0 } = settings;
      const reply = await operation.call(Deliveries.method.receipts, { session, openOnly, limit });
      return reply.reports.map((report) => new DeliveryReport(report));
    });
  }

  /** Issues a URL for one upload of one file. */
  uploadTicket(session: string, settings: UploadTicketSettings = {}): Promise<IssuedTicket> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, UPLOAD_TICKET_SETTINGS);
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
      checkOptionNames("settings", settings, DOWNLOAD_TICKET_SETTINGS);
      const { name = "", lifetimeSeconds = 0 } = settings;
      const artifact = typeof source === "string" ? undefined : (await operation.claimOf(source)).artifact;
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
  tickets(session: string, settings: ListTicketsSettings = {}): Promise<Ticket[]> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, LIST_TICKETS_SETTINGS);
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
  return Buffer.from(typeof toolArguments === "string" ? toolArguments : JSON.stringify(toolArguments, checkJsonValue), "utf8");
}

/** A value of arguments as it is. Throws for one of which `JSON.stringify` would make `null` or an empty object. */
function checkJsonValue(name: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) throw notJson(name, String(value));
  if (value instanceof Map || value instanceof Set) throw notJson(name, `a ${value.constructor.name}`);
  return value;
}

function notJson(name: string, found: string): TypeError {
  return new TypeError(`\`toolArguments\` has a value that JSON cannot express: \`${name}\` is ${found}`);
}

/** The message of these settings for requests. */
export function resolveOptions(settings: ResolveSettings): MessageInitShape<typeof ResolveOptionsSchema> {
  const { nested = false, sizeLimitBytes = 0, allowExternalUrls: enabled } = settings;
  const policy = enabled === undefined ? {} : { externalUrlFetch: { enabled } };
  return { nested, sizeLimitBytes: byteCount("sizeLimitBytes", sizeLimitBytes), ...policy };
}

type DocumentSourceInit = NonNullable<MessageInitShape<typeof ReadAttachmentRequestSchema>["source"]>;

function documentSource(source: string | Stored): DocumentSourceInit {
  if (typeof source !== "string") {
    const value = bytesOrClaimOf(source);
    return { source: value instanceof Uint8Array ? { case: "inline", value } : { case: "claim", value } };
  }
  const isUrl = source.includes("://") || source.startsWith("files/");
  return { source: { case: isUrl ? "url" : "path", value: source } };
}
