"""A toolset for Pydantic AI: `Agent(model, toolsets=[drayage_toolset(dray, session="s1")])`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic_ai import FunctionToolset, RunContext, Tool

from drayage.adapters._tools import DEFAULT_TOOLS, ToolDefinition, Toolkit
from drayage.aio import AsyncDray

__all__ = ["DEFAULT_TOOLS", "drayage_toolset"]


def drayage_toolset(
    dray: AsyncDray, *, sandbox: str = "", session: str = "", tools: Collection[str] | None = None
) -> FunctionToolset[Any]:
    """The tools for a sandbox (`docker:web`) or for a session, with its sandbox and its chat. `tools` are `DEFAULT_TOOLS`
    unless named; `exec` has to be named. Failures are texts for the model that name a remedy."""
    toolkit = Toolkit(dray, sandbox=sandbox, session=session, tools=tools)
    return FunctionToolset([_tool(toolkit, definition) for definition in toolkit.definitions], id="drayage")


def _tool(toolkit: Toolkit, definition: ToolDefinition) -> Tool[Any]:
    # The first parameter has no name, because a model may give an argument of any name.
    async def run(context: RunContext[Any], /, **arguments: Any) -> str:
        return await toolkit.call(definition.name, arguments, context.tool_call_id or "")

    return Tool.from_schema(run, definition.name, definition.description, definition.parameters, takes_ctx=True)
