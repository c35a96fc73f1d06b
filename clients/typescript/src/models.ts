/** Results of operations. Each result keeps the protobuf message as `message`, for fields without a property here. */

import { DrayageError, errorFor, faultOf, InvalidParameterError, makeFault } from "./faults.js";
import {
  type Claim,
  type Content,
  type DeliveredFile as DeliveredFileMessage,
  type DeliveryReport as DeliveryReportMessage,
  type ExecSandboxReply,
  type FetchReply,
  FileState,
  type IssuedTicket as IssuedTicketMessage,
  type PlacedFile as PlacedFileMessage,
  type ReadAttachmentReply,
  type ResolvedArguments as ResolvedArgumentsMessage,
  type ResolvedFile,
  SandboxCommandState,
  type SandboxEntry as SandboxEntryMessage,
  SandboxEntryKind,
  type SandboxFile as SandboxFileMessage,
  type Ticket as TicketMessage,
  TicketDirection,
  TicketState,
  type ToolCallRejected,
  type TransferReceipt,
} from "./v1/index.js";

/** The kind of a path in a sandbox. */
export type EntryKind = "file" | "dir" | "symlink" | "fifo" | "socket" | "chardev" | "blockdev" | "other";

/** The state of a file of a delivery. An unknown file may have arrived; it is never a success. */
export type DeliveredFileState =
  | "queued"
  | "sending"
  | "delivered"
  | "delivered_as_link"
  | "copied"
  | "rejected"
  | "failed"
  | "unknown";

/** The state of a ticket; `unknown` for a state that only a newer service has. */
export type TicketStateName =
  | "open"
  | "active"
  | "stored"
  | "complete"
  | "failed"
  | "revoked"
  | "expired"
  | "unknown";

const TICKET_STATES: Partial<Record<TicketState, TicketStateName>> = {
  [TicketState.OPEN]: "open",
  [TicketState.ACTIVE]: "active",
  [TicketState.STORED]: "stored",
  [TicketState.COMPLETE]: "complete",
  [TicketState.FAILED]: "failed",
  [TicketState.REVOKED]: "revoked",
  [TicketState.EXPIRED]: "expired",
};
const ENTRY_KINDS: Partial<Record<SandboxEntryKind, EntryKind>> = {
  [SandboxEntryKind.FILE]: "file",
  [SandboxEntryKind.DIRECTORY]: "dir",
  [SandboxEntryKind.SYMLINK]: "symlink",
  [SandboxEntryKind.FIFO]: "fifo",
  [SandboxEntryKind.SOCKET]: "socket",
  [SandboxEntryKind.CHAR_DEVICE]: "chardev",
  [SandboxEntryKind.BLOCK_DEVICE]: "blockdev",
};
const FILE_STATES: Partial<Record<FileState, DeliveredFileState>> = {
  [FileState.QUEUED]: "queued",
  [FileState.SENDING]: "sending",
  [FileState.DELIVERED]: "delivered",
  [FileState.DELIVERED_AS_LINK]: "delivered_as_link",
  [FileState.COPIED]: "copied",
  [FileState.REJECTED]: "rejected",
  [FileState.FAILED]: "failed",
};

function hexOf(digest: Uint8Array | undefined): string {
  return Buffer.from(digest ?? []).toString("hex");
}

function textOf(path: Uint8Array): string {
  return Buffer.from(path).toString("utf8");
}

/** The arguments of a tool call with content in place of references. */
export class ResolvedArguments {
  constructor(
    readonly message: ResolvedArgumentsMessage,
    /** The arguments as JSON text; `undefined` when they are larger than a message and were not fetched. */
    readonly content: Uint8Array | undefined,
  ) {}

  /** The arguments as JSON text, with every number as it was sent. */
  get json(): string {
    if (this.content === undefined) {
      throw new DrayageError(
        makeFault("too_large", "The resolved arguments are larger than a message.", {
          detail: "claim_not_opened",
          advice: "Read the claim in `message.arguments` from the store, or connect the publisher with `dray`.",
        }),
      );
    }
    return Buffer.from(this.content).toString("utf8");
  }

  /** The arguments as values of JavaScript. Numbers beyond its precision are rounded; `json` contains them exactly. */
  get arguments(): Record<string, unknown> {
    return JSON.parse(this.json) as Record<string, unknown>;
  }

  /** The files whose content replaced a reference, in order of appearance. */
  get files(): readonly ResolvedFile[] {
    return this.message.files;
  }
}

/** The outcome of a published tool call: arguments, or a text for the model. */
export class ToolCallOutcome {
  constructor(
    readonly operationId: string,
    readonly toolCallId: string,
    readonly tool: string,
    readonly resolved: ResolvedArguments | undefined,
    readonly rejected: ToolCallRejected | undefined,
  ) {}

  /** The text that the model gets as the result of a rejected call; empty for a resolved one. */
  get toolMessage(): string {
    return this.rejected?.invalid?.toolMessage || this.rejected?.fault?.message || "";
  }

  /** The resolved arguments. Throws the error of a rejected call. */
  arguments(): Record<string, unknown> {
    if (this.resolved !== undefined) return this.resolved.arguments;
    if (this.rejected?.invalid !== undefined) throw new InvalidParameterError(this.rejected.invalid);
    throw errorFor(faultOf(this.rejected?.fault));
  }
}

/** A file from the web. Its content is untrusted, and its labels are those that the server declared. */
export class FetchedFile {
  constructor(readonly message: FetchReply) {}

  /** Size of the stored content in bytes. */
  get size(): number {
    return Number(this.message.size);
  }

  /** SHA-256 of the stored bytes, hexadecimal. */
  get sha256(): string {
    return hexOf(this.message.sha256);
  }

  /** Media type as the server declared it. */
  get mediaType(): string {
    return this.message.mediaType;
  }

  /** File name as the server gave it, made safe; empty when it gave none. */
  get name(): string {
    return this.message.name;
  }

  /** The bytes, or a claim on them: for `readBytes`, `open` and `download`. */
  get content(): Content | undefined {
    return this.message.content;
  }
}

/** A document as Markdown, framed as untrusted data. */
export class Document {
  constructor(
    readonly message: ReadAttachmentReply,
    /** The text that a model sees; never empty. Problems with the document are described here too. */
    readonly text: string,
  ) {}

  /** `inline`, `summary`, `note`, `hint`, `refuse` or `cancelled`. */
  get outcome(): string {
    return this.message.outcome;
  }

  /** Empty, or a code of docs/reading.md. */
  get errorCode(): string {
    return this.message.errorCode;
  }

  /** Media type by the bytes; empty when refused before it was known. */
  get mediaType(): string {
    return this.message.mime;
  }

  /** Whether something was left out. */
  get truncated(): boolean {
    return this.message.truncated;
  }
}

/** An entry of a sandbox: its path, kind and size. */
export class SandboxEntry {
  constructor(readonly message: SandboxEntryMessage) {}

  /** The path as text. For a path that is not UTF-8 use the bytes in `message.path`. */
  get path(): string {
    return textOf(this.message.path);
  }

  get kind(): EntryKind {
    return ENTRY_KINDS[this.message.kindCode] ?? "other";
  }

  /** Size in bytes. */
  get size(): number {
    return Number(this.message.size);
  }
}

/** The entries of a directory of a sandbox, in the order of their paths. */
export interface SandboxListing {
  readonly entries: readonly SandboxEntry[];
  /** Whether a limit ended the list early. */
  readonly truncated: boolean;
}

/** A file that was copied out of a sandbox into the store, with proof. */
export class SandboxFile {
  constructor(readonly message: SandboxFileMessage) {}

  /** The claim on the stored file: for `download`, `open`, `readBytes`, `read` and `send`. */
  get claim(): Claim | undefined {
    return this.message.claim;
  }

  /** Size in bytes. */
  get size(): number {
    return Number(this.message.claim?.artifact?.size ?? 0n);
  }

  /** SHA-256, hexadecimal. */
  get sha256(): string {
    return hexOf(this.message.claim?.artifact?.sha256);
  }

  /** Proof of the transfer. */
  get receipt(): TransferReceipt | undefined {
    return this.message.receipt;
  }
}

/** A file that was written into a sandbox. */
export class PlacedFile {
  constructor(readonly message: PlacedFileMessage) {}

  /** Final path as text; its bytes are in `message.path`. */
  get path(): string {
    return textOf(this.message.path);
  }

  /** Size in bytes. */
  get size(): number {
    return Number(this.message.size);
  }

  /** SHA-256, hexadecimal. */
  get sha256(): string {
    return hexOf(this.message.sha256);
  }

  /** Proof of the transfer. */
  get receipt(): TransferReceipt | undefined {
    return this.message.receipt;
  }
}

/** The end of a program in a sandbox. */
export class CommandEnd {
  constructor(readonly message: ExecSandboxReply) {}

  /** Whether it exited, was ended by a signal, or reached a time limit. */
  get state(): "exited" | "signaled" | "timed_out" {
    if (this.message.state === SandboxCommandState.TIMED_OUT) return "timed_out";
    return this.message.state === SandboxCommandState.SIGNALED ? "signaled" : "exited";
  }

  /** Exit code; with a signal 128 + its number, and 137 at a time limit. */
  get exitCode(): number {
    return this.message.exitCode;
  }

  /** Number of the signal that ended it; 0 without one. */
  get signal(): number {
    return this.message.signal;
  }

  /** Time from its start to its end. */
  get milliseconds(): number {
    return Number(this.message.milliseconds);
  }

  /** Whether output was dropped because it exceeded the limit. */
  get truncated(): boolean {
    return (this.message.stdout?.truncated ?? false) || (this.message.stderr?.truncated ?? false);
  }
}

/** A program that has ended in a sandbox, with its outputs. */
export class CommandResult extends CommandEnd {
  /** @param stdout Standard output, as far as it was kept. @param stderr Standard error, as far as it was kept. */
  constructor(
    message: ExecSandboxReply,
    readonly stdout: Uint8Array,
    readonly stderr: Uint8Array,
  ) {
    super(message);
  }
}

/** Bytes that a program has written. They may end within a character: decode with a `TextDecoder` and `stream: true`.
 * */
export class CommandChunk {
  constructor(
    readonly output: "stdout" | "stderr",
    readonly data: Uint8Array,
  ) {}
}

/** The outcome of one file of a delivery. */
export class DeliveredFile {
  constructor(readonly message: DeliveredFileMessage) {}

  /** Visible name. */
  get name(): string {
    return this.message.name;
  }

  get state(): DeliveredFileState {
    return FILE_STATES[this.message.stateCode] ?? "unknown";
  }

  /** Sentence on the failure; empty without one. */
  get error(): string {
    return this.message.errorMessage;
  }
}

/** The outcome of a delivery, as far as the platform confirmed it. */
export class DeliveryReport {
  constructor(readonly message: DeliveryReportMessage) {}

  /** The id, which is the operation id of `send`. */
  get deliveryId(): string {
    return this.message.deliveryId;
  }

  /** Whether the delivery has ended. */
  get finished(): boolean {
    return this.message.finished;
  }

  /** Whether every file was shown. */
  get success(): boolean {
    return this.message.success;
  }

  /** The files, in the order of the request. */
  get files(): DeliveredFile[] {
    return this.message.files.map((file) => new DeliveredFile(file));
  }
}

/** The state of a ticket, without its URL. */
export class Ticket {
  constructor(readonly message: TicketMessage) {}

  /** The id, which identifies the ticket but grants no access. */
  get ticketId(): string {
    return this.message.ticketId;
  }

  get direction(): "upload" | "download" {
    return this.message.direction === TicketDirection.DOWNLOAD ? "download" : "upload";
  }

  get state(): TicketStateName {
    return TICKET_STATES[this.message.state] ?? "unknown";
  }

  /** Most bytes of an upload; the size of a download. */
  get maxBytes(): number {
    return Number(this.message.maxBytes);
  }

  /** SHA-256 of the stored content, hexadecimal; empty while there is none. */
  get sha256(): string {
    return hexOf(this.message.sha256);
  }
}

/** A new ticket. Its URL is a secret for its user, and cannot be requested a second time. */
export class IssuedTicket {
  constructor(readonly message: IssuedTicketMessage) {}

  /** The state of the ticket. */
  get ticket(): Ticket {
    if (this.message.ticket === undefined) throw new TypeError("the reply has no ticket");
    return new Ticket(this.message.ticket);
  }

  /** The URL, for one file, once. */
  get url(): string {
    return this.message.url;
  }

  /** A command line for `curl` that uses the ticket. */
  get curl(): string {
    return this.message.curl;
  }
}
