"""The socket of a transfer: no lookup, no connection attempt, no send and no read lasts longer than the transfer, or than a
peer may be silent.

The timeout of a socket is for all of `sendall`, for each `recv` of many, and for each address of a host. None of these is the
time since the last byte, and none ends at a deadline. A lookup has no timeout.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
from functools import partial
from typing import Any, BinaryIO, Literal

from drayage._transfer import Transfer, shut_down


def connect(
    transfer: Transfer, host: str, port: int, context: ssl.SSLContext | None, max_silence: float
) -> socket.socket:
    """A connection to the first address of a host that accepts one, with TLS if there is a `context`."""
    failure = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in _look_up(transfer, host, port, max_silence):
        try:
            connection = _connect_to(transfer, socket.socket(family, kind, protocol), address, max_silence)
        except OSError as error:
            failure = error
        else:
            return connection if context is None else _encrypt(transfer, connection, host, context)
    raise failure


def _connect_to(transfer: Transfer, connection: socket.socket, address: Any, max_silence: float) -> socket.socket:
    try:
        transfer.on_cancel(partial(shut_down, connection))
        connection.settimeout(min(transfer.remaining(), max_silence))
        connection.connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connection.close()
        raise
    return connection


def _encrypt(transfer: Transfer, connection: socket.socket, host: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    # The handshake is not part of wrapping, which takes the descriptor away from the socket that `cancel` shuts down.
    encrypted = context.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
    try:
        transfer.on_cancel(partial(shut_down, encrypted))
        encrypted.do_handshake()
    except BaseException:
        encrypted.close()
        raise
    return encrypted


def _look_up(transfer: Transfer, host: str, port: int, max_silence: float) -> list[tuple[Any, ...]]:
    """The addresses of a host. The function of the system cannot be interrupted, so it runs in a separate thread, which is
    left behind when the time is over or the transfer was cancelled."""
    addresses: list[tuple[Any, ...]] = []
    failures: list[Exception] = []
    is_over = threading.Event()

    def run() -> None:
        try:
            addresses.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:
            failures.append(error)
        is_over.set()

    transfer.on_cancel(is_over.set)
    threading.Thread(target=run, name="drayage-lookup", daemon=True).start()
    has_ended = is_over.wait(min(transfer.remaining(), max_silence))
    transfer.remaining()
    if not has_ended:
        raise TimeoutError(f"the lookup of {host} took too long")
    if failures:
        raise failures[0]
    return addresses


class TransferSocket:
    """What `http.client` uses of a socket."""

    def __init__(self, connection: socket.socket, transfer: Transfer, max_silence: float) -> None:
        self._connection = connection
        self._transfer = transfer
        self.max_silence = max_silence
        """Longest time in seconds without a byte."""
        self.has_refused_bytes = False
        """Whether a send failed: the peer closed the connection, or takes no more bytes."""

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        """Sends all bytes."""
        remaining = memoryview(data)
        while remaining:
            self.set_timeout()
            try:
                count = self._connection.send(remaining)
            except OSError:
                self.has_refused_bytes = True
                raise
            remaining = remaining[count:]

    def makefile(self, mode: Literal["rb"]) -> BinaryIO:
        """The bytes of the peer, as a file."""
        return io.BufferedReader(_Reader(self._connection.makefile(mode, buffering=0), self))

    def close(self) -> None:
        """Closes the connection. A file of `makefile` can still be read."""
        self._connection.close()

    def set_timeout(self) -> None:
        """Limits the next send or read. Raises after the deadline and after the cancellation of the transfer."""
        self._connection.settimeout(min(self._transfer.remaining(), self.max_silence))

    def disable_waiting(self) -> None:
        """Makes the next read fail if no bytes are there."""
        self._connection.settimeout(0)


class _Reader(io.RawIOBase):
    """Reads from a socket after setting its timeout."""

    def __init__(self, raw: io.RawIOBase, limits: TransferSocket) -> None:
        self._raw = raw
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._limits.set_timeout()
        count = self._raw.readinto(buffer) or 0
        remaining = memoryview(buffer)[count:]
        # A read over TLS returns one record, at most 16 KiB, so those that have arrived are read as well. The next read meets
        # an end or an error again.
        self._limits.disable_waiting()
        with contextlib.suppress(OSError):
            while count and remaining and (further := self._raw.readinto(remaining)):
                count += further
                remaining = remaining[further:]
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
