"""The socket of a transfer: no send and no read lasts longer than the transfer, or than a peer may be silent.

The timeout of a socket is for all of `sendall`, and for each `recv` of many. Neither is the time since the last byte, and
neither ends at a deadline.
"""

from __future__ import annotations

import contextlib
import io
import socket
from typing import BinaryIO, Literal

from drayage._transfer import Transfer


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
