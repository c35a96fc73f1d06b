"""Copies of streams in temporary files, because the store needs size and digest before the bytes."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeGuard, TypeVar, Union

from drayage._http import CHUNK_BYTES
from drayage._transfer import AsyncTransfer, Transfer
from drayage.faults import deadline_error

Stream = Union[BinaryIO, Iterable[bytes], AsyncIterable[bytes]]
"""A file that was opened for reading bytes, or an iterable of bytes."""
ResultT = TypeVar("ResultT")
CLOCK_TOLERANCE_SECONDS = 0.01
"""A timer of an event loop may end this much earlier than its time."""


class StreamCopy:
    """Copies the stream of an operation of the synchronous client."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer

    def make(self, stream: Stream) -> Path:
        """Copies a stream. The caller removes the file."""
        if isinstance(stream, AsyncIterable):
            raise TypeError("an asynchronous iterable needs the client for asyncio, `AsyncDray`")
        return copy_stream(self._transfer, stream)


class AsyncStreamCopy:
    """Copies the stream of an operation of the client for asyncio."""

    def __init__(self, transfer: AsyncTransfer) -> None:
        self._transfer = transfer

    async def make(self, stream: Stream) -> Path:
        """Copies a stream. The caller removes the file.

        An asynchronous iterable is read in this event loop. No thread waits for it, because it may itself need the threads
        of the loop, as files of `aiofiles` and `AsyncDray.open` do."""
        # This check comes before that for `read`, because files of `aiofiles` have both.
        if isinstance(stream, AsyncIterable):
            return await self._copy(aiter(stream))
        # A thread that waits for an iterable cannot be ended, so this call ends without it at its deadline.
        return await self._before_deadline(self._transfer.run(copy_stream, stream))

    async def _copy(self, chunks: AsyncIterator[bytes]) -> Path:
        with _kept_copy() as (file, path):
            while (chunk := await self._next(chunks)) is not None:
                await asyncio.to_thread(file.write, _checked(chunk))
        return path

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """The next chunk, and `None` after the last one."""
        return await self._before_deadline(anext(chunks, None))

    async def _before_deadline(self, awaitable: Awaitable[ResultT]) -> ResultT:
        try:
            return await asyncio.wait_for(awaitable, self._transfer.remaining())
        except asyncio.TimeoutError:
            if self._transfer.allows(CLOCK_TOLERANCE_SECONDS):
                # The deadline has not passed: the iterable itself raised it.
                raise
            raise deadline_error() from None


def copy_stream(transfer: Transfer, stream: BinaryIO | Iterable[bytes]) -> Path:
    """Copies a stream in this thread."""
    chunks = iter(lambda: stream.read(CHUNK_BYTES), b"") if _is_file_object(stream) else iter(stream)
    with _kept_copy() as (file, path):
        for chunk in chunks:
            transfer.remaining()
            file.write(_checked(chunk))
    transfer.on_cancel(partial(path.unlink, missing_ok=True))
    return path


@contextmanager
def _kept_copy() -> Iterator[tuple[BinaryIO, Path]]:
    """A new temporary file, which is removed after an error in the block."""
    descriptor, path = tempfile.mkstemp(prefix="drayage-")
    try:
        # Windows does not remove an open file.
        with os.fdopen(descriptor, "wb") as file:
            yield file, Path(path)
    except BaseException:
        os.unlink(path)
        raise


def _checked(chunk: object) -> bytes | bytearray | memoryview:
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise TypeError(f"a stream must yield bytes, not {type(chunk).__name__}")
    return chunk


def _is_file_object(stream: object) -> TypeGuard[BinaryIO]:
    return hasattr(stream, "read")
