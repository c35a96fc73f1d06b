"""Uses `dray mcp` with the client of another vendor's package, and prints the results as JSON.

    python mcp_judges.py {fastmcp,agents,pydantic_ai} stdio COMMAND...
    python mcp_judges.py fastmcp http URL TOKEN
"""

import asyncio
import json
import sys

READ_NOTES = {"path": "notes.txt"}


async def of_fastmcp(kind, target):
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    if kind == "stdio":
        transport = StdioTransport(target[0], target[1:], keep_alive=False)
    else:
        url, token = target
        transport = StreamableHttpTransport(url, headers={"Authorization": f"Bearer {token}"})
    async with Client(transport) as client:
        notes = await client.call_tool("read", READ_NOTES)
        outside = await client.call_tool("read", {"path": "../secret.txt"}, raise_on_error=False)
        resource = await client.read_resource(notes.structured_content["handle"])
        return {
            "tools": [tool.name for tool in await client.list_tools()],
            "notes": notes.content[0].text,
            "outside": {"error": outside.is_error, "text": outside.content[0].text},
            "resource": resource[0].text,
        }


async def of_agents(_, target):
    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from agents.mcp import MCPServerStdio
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    set_tracing_disabled(True)
    offered = []

    class ScriptedModel(Model):
        """Calls `read` once, and repeats its result."""

        async def get_response(self, system_instructions, input, model_settings, tools, *rest, **more):
            offered[:] = [tool.name for tool in tools]
            results = [item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
            if results:
                text = ResponseOutputText(text=str(results[0]["output"]), type="output_text", annotations=[])
                output = ResponseOutputMessage(
                    id="m1", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                output = ResponseFunctionToolCall(
                    arguments=json.dumps(READ_NOTES), call_id="c1", name="read", type="function_call"
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *arguments, **more):
            raise NotImplementedError

    async with MCPServerStdio({"command": target[0], "args": target[1:]}) as server:
        agent = Agent(name="reader", model=ScriptedModel(), mcp_servers=[server])
        result = await Runner.run(agent, "What do the notes say?")
        return {"tools": offered, "answer": result.final_output}


async def of_pydantic_ai(_, target):
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    offered = []

    def scripted_model(messages, info):
        offered[:] = [tool.name for tool in info.function_tools]
        results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if results:
            return ModelResponse(parts=[TextPart(str(results[0].content))])
        return ModelResponse(parts=[ToolCallPart("read", READ_NOTES)])

    server = MCPToolset(StdioTransport(target[0], target[1:], keep_alive=False))
    agent = Agent(FunctionModel(scripted_model), toolsets=[server])
    async with agent:
        result = await agent.run("What do the notes say?")
    return {"tools": offered, "answer": result.output}


async def main():
    package, kind, *target = sys.argv[1:]
    judges = {"fastmcp": of_fastmcp, "agents": of_agents, "pydantic_ai": of_pydantic_ai}
    return await judges[package](kind, target)


print(json.dumps(asyncio.run(main())))
