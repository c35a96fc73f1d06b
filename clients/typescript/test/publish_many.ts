/** Publishes the tool calls on standard input and reports each outcome, for tests in which services are killed.
 *
 * The variable DRAYAGE_SCENARIO is JSON: servers and tenant. Each line of standard input is a tool call: JSON with
 * `operation`, and `arguments` as text. Each line of standard output is an outcome: `operation`, and `arguments`,
 * `rejected` or the `sha256` of a result that is larger than a message. After the end of the input and all outcomes, a
 * last line contains the operations of `missedOutcomes`.
 */

import { createInterface } from "node:readline";

import { Publisher } from "@drayage/client/bus";

const { servers = "", tenant = "" } = JSON.parse(process.env.DRAYAGE_SCENARIO ?? "{}") as Record<string, string>;
const CALL_TIMEOUT_MS = 900_000;

interface RequestedCall {
  readonly operation: string;
  readonly arguments: string;
}

const publisher = await Publisher.connect(servers, { tenant, options: { timeoutMs: CALL_TIMEOUT_MS } });

async function run(call: RequestedCall): Promise<void> {
  const work = await publisher.publishToolCall("t", call.arguments, { operationId: call.operation });
  const outcome = await work.outcome();
  const line: Record<string, unknown> = { operation: outcome.operationId };
  const body = outcome.resolved?.message.arguments?.body;
  if (outcome.rejected !== undefined) line.rejected = outcome.toolMessage;
  else if (body?.case === "claim") line.sha256 = Buffer.from(body.value.artifact?.sha256 ?? []).toString("hex");
  else line.arguments = outcome.arguments();
  console.log(JSON.stringify(line));
}

const calls: Promise<void>[] = [];
for await (const line of createInterface({ input: process.stdin })) calls.push(run(JSON.parse(line) as RequestedCall));
await Promise.all(calls);
const missed: string[] = [];
for await (const outcome of publisher.missedOutcomes()) missed.push(outcome.operationId);
console.log(JSON.stringify({ missed }));
await publisher.close();
