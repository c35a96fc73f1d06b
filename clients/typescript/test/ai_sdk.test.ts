/** The tools for the AI SDK with its own mock model, against the real services. DRAYAGE_SCENARIO is as for scenario.test.ts.
 * */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";

import { type CallOptions, Dray } from "@drayage/client";
import { DEFAULT_TOOLS, drayageTools, type ToolkitSettings } from "@drayage/client/ai-sdk";
import { generateText, isStepCount } from "ai";
import { MockLanguageModelV4 } from "ai/test";

const SCENARIO = JSON.parse(process.env.DRAYAGE_SCENARIO ?? "{}") as Record<string, string>;
const { target = "", ca = "", token = "", other_token = "", narrow_token = "", box = "", inbox = "" } = SCENARIO;
const ADDRESS = `local:${box}`;
const ALL_TOOLS = [...DEFAULT_TOOLS, "exec"] as const;

interface Call {
  readonly tool: string;
  readonly input: unknown;
  readonly id?: string;
}

function connect(t: TestContext, secret: string, address = target, options: CallOptions = {}): Dray {
  const tls = { caCertificate: ca, serverName: "localhost" };
  const dray = new Dray(address, { token: secret, tls, timeoutMs: 60_000, ...options });
  t.after(() => dray.close());
  return dray;
}

/** Runs a model that makes the given calls one after the other, and returns their results. */
async function rehearse(dray: Dray, settings: ToolkitSettings, calls: readonly Call[]): Promise<string[]> {
  const remaining = [...calls.entries()];
  const tokens = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 };
  const usage = { inputTokens: tokens, outputTokens: { total: 1, text: 1, reasoning: 0 } };
  const model = new MockLanguageModelV4({
    doGenerate: async () => {
      const next = remaining.shift();
      if (next === undefined) {
        return { content: [{ type: "text", text: "done" }], finishReason: { unified: "stop", raw: "stop" }, usage, warnings: [] };
      }
      const [number, { tool, input, id = `call-${number}` }] = next;
      return {
        content: [{ type: "tool-call", toolCallId: id, toolName: tool, input: JSON.stringify(input) }],
        finishReason: { unified: "tool-calls", raw: "tool_calls" },
        usage,
        warnings: [],
      };
    },
  });
  const tools = drayageTools(dray, settings);
  const { steps, text } = await generateText({ model, tools, prompt: "Go.", stopWhen: isStepCount(20) });
  assert.equal(text, "done");
  return steps.flatMap((step) => step.toolResults.map(({ output }) => String(output)));
}

test("a model writes, reads, lists, runs and sends files, and gets the problems of its arguments", async (t) => {
  const dray = connect(t, token);
  await dray.bindSession("ai-sdk", { sandbox: ADDRESS, chat: `cli:${inbox}` });
  const binary = join(box, "binary\n.dat");
  await writeFile(binary, Uint8Array.of(0xff, 0xfe));
  const results = await rehearse(dray, { session: "ai-sdk", tools: ALL_TOOLS }, [
    { tool: "put", input: { name: "sums-ts.csv", content: "a,b\n1,2\n", directory: "from-ai" } },
    { tool: "read", input: { source: "from-ai/sums-ts.csv" } },
    { tool: "get", input: { path: "from-ai/sums-ts.csv" } },
    { tool: "get", input: { path: binary } },
    { tool: "list", input: {} },
    { tool: "exec", input: { argv: ["sh", "-c", "wc -l; echo problem >&2; exit 3"], stdin: "x\n" } },
    { tool: "exec", input: { argv: ["sleep", "60"], timeout_seconds: 1 } },
    { tool: "fetch", input: { url: "http://169.254.169.254/" } },
    { tool: "send_file", input: { paths: ["from-ai/sums-ts.csv"] }, id: "same" },
    { tool: "exec", input: { argv: "ls", timeout_seconds: 0.5, shell: true } },
    { tool: "put", input: { name: "", content: "\ud800" } },
  ]);
  const [put, read, get, notText, listed, ran, slow, fetched, sent, invalid, malformed] = results;
  assert.match(put ?? "", /\/from-ai\/sums-ts\.csv \(8 bytes, SHA-256 [0-9a-f]{64}\)$/);
  assert.match(read ?? "", /untrusted/);
  assert.equal(get, "a,b\n1,2\n");
  assert.match(notText ?? "", /not text: 2 bytes/);
  assert.ok(listed?.includes("binary\\u{a}.dat"), listed);
  assert.match(ran ?? "", /^exit code 3\nstandard output:\n1\n\nstandard error:\nproblem/);
  assert.match(slow ?? "", /^ended after \d+ s/);
  assert.match(fetched ?? "", /^This failed: /);
  assert.equal(sent, "sums-ts.csv: copied");
  assert.equal(await readFile(join(inbox, "sums-ts.csv"), "utf8"), "a,b\n1,2\n");
  assert.match(invalid ?? "", /argv is invalid: it must be a list.*\n.*timeout_seconds.* an integer.*\n.*shell.* no such parameter/);
  assert.match(malformed ?? "", /name is invalid: it is outside.*\n.*content is invalid: it must be a string/);
  const repeated = await rehearse(dray, { session: "ai-sdk" }, [
    { tool: "send_file", input: { paths: ["from-ai/sums-ts.csv"] }, id: "same" },
  ]);
  assert.match(repeated[0] ?? "", /nothing was sent again/);
  assert.equal((await dray.receipts({ session: "ai-sdk" })).length, 1);
});

test("a missing server, scope or permission is reported to the model with advice", async (t) => {
  const run: readonly Call[] = [{ tool: "exec", input: { argv: ["true"] } }];
  const settings: ToolkitSettings = { sandbox: ADDRESS, tools: ["exec"] };
  const cases: readonly [Dray, RegExp][] = [
    [connect(t, narrow_token), /Ask the operator to add the method to the scopes/],
    [connect(t, other_token), /sandbox-transfer\.commands\.allow/],
    [connect(t, token, "127.0.0.1:9", { retry: { maxAttempts: 2 } }), /`dray up --grpc ADDRESS`/],
  ];
  for (const [dray, advice] of cases) assert.match((await rehearse(dray, settings, run))[0] ?? "", advice);
});

test("tools that cannot work are refused when they are created", (t) => {
  const dray = connect(t, token);
  assert.deepEqual(Object.keys(drayageTools(dray, { sandbox: ADDRESS })), ["read", "list", "get", "put", "fetch"]);
  assert.throws(() => drayageTools(dray, {}), /name a sandbox/);
  assert.throws(() => drayageTools(dray, { sandbox: ADDRESS, tools: ["send_file"] }), /needs a session/);
});
