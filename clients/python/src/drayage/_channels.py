"""gRPC channels, one for each address. A client and the clients that its `with_options` returns share them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import grpc
import grpc.aio

from drayage._http import Transfers
from drayage._transport import Connection, error_of
from drayage.faults import DrayageError
from drayage.options import PemSource, read_pem


class Channels:
    """Channels of the synchronous client, which threads may share."""

    FAILURES = (grpc.RpcError,)
    """The exceptions that a failed request raises."""

    def __init__(self, connection: Connection, store_ca: PemSource | None) -> None:
        self.connection = connection
        self.transfers = Transfers(read_pem(store_ca))
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._open: dict[str, grpc.Channel] = {}
        self._is_closed = False

    def find(self, target: str) -> grpc.Channel:
        """The channel to an address, opened by the first call."""
        with self._lock:
            _refuse_closed(self._is_closed)
            if self._process != os.getpid():
                # A request on a channel of the parent would not end, not even at its deadline.
                raise RuntimeError("the client was made before `fork`; make a client in each process")
            channel = self._open.get(target)
            if channel is None:
                credentials = self.connection.credentials()
                options = self.connection.channel_options(target)
                if credentials is None:
                    channel = grpc.insecure_channel(target, options)
                else:
                    channel = grpc.secure_channel(target, credentials, options)
                self._open[target] = channel
            return channel

    def error_of(self, failure: grpc.RpcError) -> DrayageError:
        """The error of a failed attempt. Raises `RuntimeError` if the client was closed meanwhile."""
        _refuse_closed(self._is_closed)
        return error_of(failure)

    def close(self) -> None:
        """Closes every channel."""
        with self._lock:
            self._is_closed = True
            while self._open:
                self._open.popitem()[1].close()


class AsyncChannels:
    """Channels of the client for asyncio, which belong to one event loop."""

    FAILURES = (grpc.RpcError, asyncio.CancelledError)
    """The exceptions that a failed request raises."""

    def __init__(self, connection: Connection, store_ca: PemSource | None) -> None:
        self.connection = connection
        self.transfers = Transfers(read_pem(store_ca))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[str, grpc.aio.Channel] = {}
        self._is_closed = False

    def find(self, target: str) -> grpc.aio.Channel:
        """The channel to an address, opened by the first call."""
        _refuse_closed(self._is_closed)
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise RuntimeError("the client belongs to the event loop of its first request; make a client in each loop")
        channel = self._open.get(target)
        if channel is None:
            credentials = self.connection.credentials()
            options = self.connection.channel_options(target)
            if credentials is None:
                channel = grpc.aio.insecure_channel(target, options)
            else:
                channel = grpc.aio.secure_channel(target, credentials, options)
            self._open[target] = channel
        return channel

    def error_of(self, failure: grpc.RpcError | asyncio.CancelledError) -> DrayageError:
        """The error of a failed attempt. Raises `RuntimeError` if the client was closed meanwhile, and the cancellation of
        the caller's task."""
        if isinstance(failure, grpc.RpcError) or _task_continues():
            _refuse_closed(self._is_closed)
        if isinstance(failure, asyncio.CancelledError):
            raise failure
        return error_of(failure)

    async def close(self) -> None:
        """Closes every channel."""
        self._is_closed = True
        while self._open:
            await self._open.popitem()[1].close()


def _task_continues() -> bool:
    """Whether this task was not cancelled. gRPC cancels its waiting callers when a channel is closed, and a task group would
    take that for their own cancellation. Python 3.10 does not distinguish the two."""
    task = asyncio.current_task()
    return sys.version_info >= (3, 11) and task is not None and not task.cancelling()


def _refuse_closed(is_closed: bool) -> None:
    """Raises for a closed client. A channel that is opened after `close` would stay open."""
    if is_closed:
        raise RuntimeError("the client is closed")
