/** Options of a publisher on the bus, with their names for callers without a compiler. */

import type { NodeConnectionOptions } from "@nats-io/transport-node";

import type { Dray } from "./client.js";
import type { OptionNames } from "./option_names.js";
import type { CallOptions } from "./options.js";
import { RESOLVE_SETTINGS, type ResolveSettings } from "./settings.js";

/** Identity and options of a publisher. */
export interface PublisherOptions {
  readonly tenant: string;
  /** User of the server; `publisher-<tenant>` when unset. */
  readonly user?: string;
  readonly password?: string;
  /** Timeout, retries and trace context. */
  readonly options?: CallOptions;
  /** A client of the same tenant, which reads results that are larger than a message. */
  readonly dray?: Dray;
  /** For the connection: `tls`, `authenticator` … */
  readonly nats?: NodeConnectionOptions;
}

/** Options of one tool call. */
export interface PublishSettings extends ResolveSettings {
  readonly toolCallId?: string;
  /** The same id is the same work. */
  readonly operationId?: string;
  /** Milliseconds until the call ends as expired. */
  readonly timeoutMs?: number;
}

/** How missed outcomes are taken. */
export interface MissedOutcomesSettings {
  /** Milliseconds without an outcome after which the loop ends; 2,000 when unset. */
  readonly waitMs?: number;
}

export const PUBLISHER_OPTIONS: OptionNames<PublisherOptions> = {
  tenant: true,
  user: true,
  password: true,
  options: true,
  dray: true,
  nats: true,
};
export const PUBLISH_SETTINGS: OptionNames<PublishSettings> = {
  ...RESOLVE_SETTINGS,
  toolCallId: true,
  operationId: true,
  timeoutMs: true,
};
export const MISSED_OUTCOMES_SETTINGS: OptionNames<MissedOutcomesSettings> = { waitMs: true };
