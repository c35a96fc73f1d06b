"""Calls that the types of the package have to allow or to refuse. Checked by mypy, not run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing

from drayage import AsyncDray, CommandChunk, CommandEnd, Dray, FetchedFile, ToolCallOutcome
from drayage.bus import AsyncPublisher, Publisher


def close_streams(dray: Dray, publisher: Publisher, fetched: FetchedFile) -> None:
    """Leaves each stream of the synchronous clients early."""
    with closing(dray.open(fetched)) as chunks:
        first: bytes = next(chunks)
        rest: Iterator[bytes] = chunks
    with closing(dray.sandbox("docker:web").exec_stream(["cat"], stdin=fetched)) as events:
        event: CommandChunk | CommandEnd = next(events)
    with closing(publisher.missed_outcomes()) as outcomes:
        outcome: ToolCallOutcome = next(outcomes)
    print(first, rest, event, outcome)


def publish(publisher: Publisher) -> None:
    """Publishes a call with a setting, and with one that does not exist."""
    publisher.publish_tool_call("t", {}, operation_id="o", timeout=5)
    publisher.publish_tool_call("t", {}, deadline=5)  # type: ignore[call-arg]


async def close_async_streams(dray: AsyncDray, publisher: AsyncPublisher, fetched: FetchedFile) -> None:
    """Leaves each stream of the clients for asyncio early."""
    async with aclosing(dray.open(fetched)) as chunks:
        first: bytes = await anext(chunks)
        rest: AsyncIterator[bytes] = chunks
    async with aclosing(dray.sandbox("docker:web").exec_stream(["cat"], stdin=fetched)) as events:
        event: CommandChunk | CommandEnd = await anext(events)
    async with aclosing(publisher.missed_outcomes()) as outcomes:
        outcome: ToolCallOutcome = await anext(outcomes)
    print(first, rest, event, outcome)
