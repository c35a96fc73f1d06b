// Uses `dray mcp` with the client of @modelcontextprotocol/sdk and prints a report as JSON.
//
//     node sdk_client.mjs stdio COMMAND...
//     node sdk_client.mjs http URL TOKEN

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [kind, first, ...rest] = process.argv.slice(2);
const transport =
  kind === "stdio"
    ? new StdioClientTransport({ command: first, args: rest, env: process.env })
    : new StreamableHTTPClientTransport(new URL(first), {
        requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } },
      });
const client = new Client({ name: "judge", version: "1" });
await client.connect(transport);
const call = (name, args) => client.callTool({ name, arguments: args });
const notes = await call("read", { path: "notes.txt" });
const outside = await call("read", { path: "../secret.txt" });
const resource = await client.readResource({ uri: notes.structuredContent.handle });
const report = {
  tools: (await client.listTools()).tools.map((tool) => tool.name),
  notes: notes.content[0].text,
  outside: { error: outside.isError, text: outside.content[0].text },
  resource: resource.contents[0].text,
};
console.log(JSON.stringify(report));
await client.close();
