/** Options of the client's methods, with their names for callers without a compiler. */

import { CALL_OPTIONS, type OptionNames } from "./option_names.js";
import type { Stored, StoreSettings } from "./operation.js";
import type { CallOptions } from "./options.js";
import type { SandboxPath } from "./sandbox.js";
import type { LocalSource } from "./sources.js";
import { CONNECTION_OPTIONS, type ConnectionOptions } from "./transport.js";

/** How references in arguments are replaced. */
export interface ResolveSettings {
  /** Whether strings in nested objects and lists are resolved too. */
  readonly nested?: boolean;
  /** Most bytes of one file; the operator's default when unset. */
  readonly sizeLimitBytes?: number;
  /** Whether the app allows fetching external URLs. When unset, the request contains no policy of the app. */
  readonly allowExternalUrls?: boolean;
}

/** How the references of one tool call are replaced. */
export interface ResolveCallSettings extends ResolveSettings {
  /** Name of the tool, for logs and limits of the services. */
  readonly tool?: string;
  /** API key of DIAL, for its files. */
  readonly dialApiKey?: string;
}

/** How a published tool call is resolved. */
export interface ToolCallSettings extends ResolveSettings {
  /** Id of the call; a new one when unset. */
  readonly toolCallId?: string;
}

/** How a resource of the web is fetched. */
export type FetchSettings = Omit<ResolveSettings, "nested">;

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

/** Which deliveries are listed. */
export interface ReceiptsSettings {
  /** Session; all of the tenant when unset. */
  readonly session?: string;
  /** Whether only deliveries without an outcome are listed. */
  readonly openOnly?: boolean;
  /** Most deliveries; the number of the service when unset. */
  readonly limit?: number;
}

/** How many tickets are listed. */
export interface ListTicketsSettings {
  /** Most tickets; the number of the service when unset. */
  readonly limit?: number;
}

export const CLIENT_OPTIONS: OptionNames<ConnectionOptions & CallOptions> = { ...CONNECTION_OPTIONS, ...CALL_OPTIONS };
export const FETCH_SETTINGS: OptionNames<FetchSettings> = { sizeLimitBytes: true, allowExternalUrls: true };
export const RESOLVE_SETTINGS: OptionNames<ResolveSettings> = { ...FETCH_SETTINGS, nested: true };
export const RESOLVE_CALL_SETTINGS: OptionNames<ResolveCallSettings> = { ...RESOLVE_SETTINGS, tool: true, dialApiKey: true };
export const TOOL_CALL_SETTINGS: OptionNames<ToolCallSettings> = { ...RESOLVE_SETTINGS, toolCallId: true };
export const READ_SETTINGS: OptionNames<ReadSettings> = {
  name: true,
  range: true,
  find: true,
  summarize: true,
  focus: true,
  showHidden: true,
  member: true,
};
export const STORE_SETTINGS: OptionNames<StoreSettings> = { name: true, mediaType: true, session: true };
export const SESSION_SETTINGS: OptionNames<SessionSettings> = { sandbox: true, chat: true, workingDirectory: true };
export const SEND_SETTINGS: OptionNames<SendSettings> = {
  paths: true,
  files: true,
  message: true,
  asVoice: true,
  asDocument: true,
  spoiler: true,
  turn: true,
};
export const RECEIPTS_SETTINGS: OptionNames<ReceiptsSettings> = { session: true, openOnly: true, limit: true };
export const LIST_TICKETS_SETTINGS: OptionNames<ListTicketsSettings> = { limit: true };
export const DOWNLOAD_TICKET_SETTINGS: OptionNames<DownloadTicketSettings> = { name: true, lifetimeSeconds: true };
export const UPLOAD_TICKET_SETTINGS: OptionNames<UploadTicketSettings> = {
  maxBytes: true,
  size: true,
  mediaType: true,
  sha256: true,
  name: true,
  to: true,
  lifetimeSeconds: true,
};
