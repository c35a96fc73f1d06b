"""Types of the streams that the clients return. A caller that leaves one early closes it: `contextlib.closing`, or
`contextlib.aclosing` with asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

ItemT = TypeVar("ItemT")

Stream = Generator[ItemT, None, None]
"""The items of a stream of the synchronous client."""
AsyncStream = AsyncGenerator[ItemT, None]
"""The items of a stream of the client for asyncio."""
