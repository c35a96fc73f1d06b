/** Published tool calls and sent deliveries, whose outcome can be requested more than once. */

import { DeliveryReport, ToolCallOutcome } from "./models.js";
import { type ClientContext, type Operation, runOperation } from "./operation.js";
import { checkOptionNames, WAIT_OPTIONS } from "./option_names.js";
import type { CallOptions, WaitOptions } from "./options.js";
import { Deliveries, ToolCalls } from "./v1/index.js";

/** Time between two requests for an outcome. */
const POLL_INTERVAL_MS = 250;
/** Longest time that the service waits before it replies to a request for the outcome of a delivery. */
const MAX_HOLD_MS = 20_000;

/** Repeats a request until it returns an outcome. */
async function waitFor<Outcome>(
  context: ClientContext,
  options: CallOptions,
  wait: WaitOptions,
  request: (operation: Operation) => Promise<Outcome | undefined>,
): Promise<Outcome> {
  checkOptionNames("settings", wait, WAIT_OPTIONS);
  // A request for the outcome must not reuse the id of the operation itself.
  const { operationId: _, ...rest } = options;
  return runOperation(context, { ...rest, ...wait }, async (operation) => {
    for (;;) {
      const outcome = await request(operation);
      if (outcome !== undefined) return outcome;
      await operation.deadline.wait(POLL_INTERVAL_MS);
    }
  });
}

/** A tool call that the stream has stored. */
export class PublishedToolCall {
  readonly #context: ClientContext;
  readonly #options: CallOptions;

  /** Made by `Dray.publishToolCall` and `Dray.toolCall`. */
  constructor(
    context: ClientContext,
    options: CallOptions,
    /** Id that finds the outcome, until three days after the end of the call. */
    readonly operationId: string,
    /** Whether a call with this id was published before. */
    readonly duplicate: boolean,
  ) {
    this.#context = context;
    this.#options = options;
  }

  /** Waits for the end of the call. */
  outcome(wait: WaitOptions = {}): Promise<ToolCallOutcome> {
    const { operationId } = this;
    return waitFor(this.#context, this.#options, wait, async (operation) => {
      const { outcome } = await operation.call(ToolCalls.method.outcome, { operationId });
      switch (outcome.case) {
        case "resolved": {
          const { toolCallId, tool, resolved } = outcome.value;
          const opened = await operation.openArguments(resolved);
          return new ToolCallOutcome(operationId, toolCallId, tool, opened, undefined);
        }
        case "rejected": {
          const { toolCallId, tool } = outcome.value;
          return new ToolCallOutcome(operationId, toolCallId, tool, undefined, outcome.value);
        }
        default:
          return undefined;
      }
    });
  }
}

/** A delivery that the stream has stored. */
export class Delivery {
  readonly #context: ClientContext;
  readonly #options: CallOptions;

  /** Made by `Dray.send` and `Dray.delivery`. */
  constructor(
    context: ClientContext,
    options: CallOptions,
    /** Id that finds the outcome; the same as in receipts. */
    readonly deliveryId: string,
    /** Whether a delivery with this id was sent before. */
    readonly duplicate: boolean,
  ) {
    this.#context = context;
    this.#options = options;
  }

  /** Waits for the end of the delivery, a success only if the platform confirmed every file. */
  outcome(wait: WaitOptions = {}): Promise<DeliveryReport> {
    const request = { deliveryId: this.deliveryId, waitMs: BigInt(MAX_HOLD_MS) };
    return waitFor(this.#context, this.#options, wait, async (operation) => {
      const report = await operation.call(Deliveries.method.outcome, request);
      return report.finished ? new DeliveryReport(report) : undefined;
    });
  }
}
