"""gRPC channels, one for each address. A client and the clients that its `with_options` returns share them."""

from __future__ import annotations

import threading

import grpc
import grpc.aio

from drayage._http import Transfers
from drayage._transport import Connection
from drayage.options import PemSource, read_pem


class Channels:
    """Channels of the synchronous client, which threads may share."""

    def __init__(self, connection: Connection, store_ca: PemSource | None) -> None:
        self.connection = connection
        self.transfers = Transfers(read_pem(store_ca))
        self._lock = threading.Lock()
        self._open: dict[str, grpc.Channel] = {}
        self._is_closed = False

    def find(self, target: str) -> grpc.Channel:
        """The channel to an address, opened by the first call."""
        with self._lock:
            _refuse_closed(self._is_closed)
            channel = self._open.get(target)
            if channel is None:
                credentials = self.connection.credentials()
                options = self.connection.channel_options()
                if credentials is None:
                    channel = grpc.insecure_channel(target, options)
                else:
                    channel = grpc.secure_channel(target, credentials, options)
                self._open[target] = channel
            return channel

    def close(self) -> None:
        """Closes every channel."""
        with self._lock:
            self._is_closed = True
            while self._open:
                self._open.popitem()[1].close()


class AsyncChannels:
    """Channels of the client for asyncio, which belong to one event loop."""

    def __init__(self, connection: Connection, store_ca: PemSource | None) -> None:
        self.connection = connection
        self.transfers = Transfers(read_pem(store_ca))
        self._open: dict[str, grpc.aio.Channel] = {}
        self._is_closed = False

    def find(self, target: str) -> grpc.aio.Channel:
        """The channel to an address, opened by the first call."""
        _refuse_closed(self._is_closed)
        channel = self._open.get(target)
        if channel is None:
            credentials = self.connection.credentials()
            options = self.connection.channel_options()
            if credentials is None:
                channel = grpc.aio.insecure_channel(target, options)
            else:
                channel = grpc.aio.secure_channel(target, credentials, options)
            self._open[target] = channel
        return channel

    async def close(self) -> None:
        """Closes every channel."""
        self._is_closed = True
        while self._open:
            await self._open.popitem()[1].close()


def _refuse_closed(is_closed: bool) -> None:
    """Raises for a closed client. A channel that is opened after `close` would stay open."""
    if is_closed:
        raise RuntimeError("the client is closed")
