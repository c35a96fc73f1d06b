/** The client of Drayage: files between the tools of agents, their sandboxes, the web and people.
 *
 * `Dray` calls the services over gRPC. `@drayage/client/bus` publishes tool calls over NATS. `@drayage/client/v1` has the
 * messages and methods of the contracts, for `Dray.call`.
 */

export { Dray } from "./client.js";
export {
  DeadlineError,
  DeniedError,
  DrayageError,
  type Fault,
  type FaultCode,
  IntegrityError,
  InternalError,
  InvalidArgumentError,
  InvalidParameterError,
  NotFoundError,
  RateLimitedError,
  TooLargeError,
  UnauthenticatedError,
  UnavailableError,
  UnsupportedError,
} from "./faults.js";
export { Delivery, PublishedToolCall } from "./handles.js";
export {
  CommandChunk,
  CommandEnd,
  CommandResult,
  DeliveredFile,
  type DeliveredFileState,
  DeliveryReport,
  Document,
  type EntryKind,
  FetchedFile,
  IssuedTicket,
  PlacedFile,
  ResolvedArguments,
  SandboxEntry,
  SandboxFile,
  type SandboxListing,
  Ticket,
  type TicketStateName,
  ToolCallOutcome,
} from "./models.js";
export type { Stored, StoreSettings } from "./operation.js";
export type { CallOptions, PemSource, RetryPolicy, Tls, WaitOptions } from "./options.js";
export {
  type CommandInput,
  type ExecSettings,
  type GetSettings,
  type ListSettings,
  type PlaceSettings,
  type RemoveSettings,
  Sandbox,
  type SandboxPath,
  type StatSettings,
} from "./sandbox.js";
export type {
  DownloadTicketSettings,
  FetchSettings,
  ListTicketsSettings,
  ReadSettings,
  ReceiptsSettings,
  ResolveCallSettings,
  ResolveSettings,
  SendSettings,
  SessionSettings,
  ToolCallSettings,
  UploadTicketSettings,
} from "./settings.js";
export type { LocalSource } from "./sources.js";
export type { ConnectionOptions } from "./transport.js";
