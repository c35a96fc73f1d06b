/** Tools for the AI SDK: `generateText({ model, tools: drayageTools(dray, { session: "s1" }), … })`. */

import { dynamicTool, jsonSchema, type ToolSet } from "ai";

import type { Dray } from "./client.js";
import { Toolkit, type ToolkitSettings } from "./toolkit.js";

export { DEFAULT_TOOLS, type ToolkitSettings, type ToolName } from "./toolkit.js";

/** The tools for a sandbox (`docker:web`) or for a session, with its sandbox and its chat. Failures are texts for the
 * model that name a remedy. */
export function drayageTools(dray: Dray, settings: ToolkitSettings): ToolSet {
  const toolkit = new Toolkit(dray, settings);
  const tools = toolkit.definitions.map(({ name, description, parameters }) => [
    name,
    dynamicTool({
      description,
      inputSchema: jsonSchema(parameters as Parameters<typeof jsonSchema>[0]),
      execute: (input, { toolCallId, abortSignal }) =>
        toolkit.call(name, input, { callId: toolCallId, signal: abortSignal }),
    }),
  ]);
  return Object.fromEntries(tools) as ToolSet;
}
