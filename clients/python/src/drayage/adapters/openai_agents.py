"""Tools for the OpenAI Agents SDK: `Agent(tools=drayage_tools(dray, session="s1"))`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext

from drayage.adapters._tools import DEFAULT_TOOLS, ToolDefinition, Toolkit
from drayage.aio import AsyncDray

__all__ = ["DEFAULT_TOOLS", "drayage_tools"]


def drayage_tools(
    dray: AsyncDray, *, sandbox: str = "", session: str = "", tools: Collection[str] | None = None
) -> list[Tool]:
    """The tools for a sandbox (`docker:web`) or for a session, with its sandbox and its chat. `tools` are `DEFAULT_TOOLS`
    unless named; `exec` has to be named. Failures are texts for the model that name a remedy."""
    toolkit = Toolkit(dray, sandbox=sandbox, session=session, tools=tools)
    return [_function_tool(toolkit, definition) for definition in toolkit.definitions]


def _function_tool(toolkit: Toolkit, definition: ToolDefinition) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        return await toolkit.call(definition.name, arguments, context.tool_call_id)

    return FunctionTool(
        name=definition.name,
        description=definition.description,
        params_json_schema=definition.parameters,
        on_invoke_tool=invoke,
        # Strict schemas have no optional parameters.
        strict_json_schema=False,
    )
