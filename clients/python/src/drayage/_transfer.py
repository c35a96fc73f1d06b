"""Work that blocks a thread: its deadline, and how another thread cancels it.

A thread cannot be stopped from outside. Cancelling shuts down its sockets, which ends reads and writes immediately, makes
every later check raise, and releases what the work leaves behind, such as a temporary file.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from drayage.faults import deadline_error

Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")


class TransferCancelled(Exception):
    """The caller does not wait for the transfer any more."""


class Transfer:
    """The deadline (`time.monotonic`) of one piece of work, and its cancellation."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._releases: list[Callable[[], object]] = []

    def run(
        self, work: Callable[Concatenate[Transfer, Parameters], ResultT], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> ResultT:
        """Does the work in this thread."""
        return work(self, *args, **kwargs)

    def remaining(self) -> float:
        """Seconds until the deadline. Raises after it and after `cancel`."""
        self.refuse_cancelled()
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise deadline_error()
        return remaining

    def allows(self, seconds: float) -> bool:
        """Whether this time remains."""
        return time.monotonic() + seconds < self._deadline

    def wait(self, seconds: float) -> None:
        """Waits between two attempts. Raises after `cancel`."""
        self._cancelled.wait(seconds)
        self.refuse_cancelled()

    def refuse_cancelled(self) -> None:
        """Raises after `cancel`."""
        if self._cancelled.is_set():
            raise TransferCancelled

    def on_cancel(self, release: Callable[[], object]) -> None:
        """Calls `release` when the work is cancelled; immediately if it was."""
        with self._lock:
            if not self._cancelled.is_set():
                self._releases.append(release)
                return
        release()

    def cancel(self) -> None:
        """Ends the work, which may still be in another thread for a moment."""
        with self._lock:
            self._cancelled.set()
            releases, self._releases = self._releases, []
        # The order is that of registration, so that sockets end before the responses that are read from them.
        for release in releases:
            release()


class AsyncTransfer:
    """Work in another thread, which ends when the waiting task is cancelled."""

    def __init__(self, deadline: float) -> None:
        self._transfer = Transfer(deadline)

    async def run(
        self, work: Callable[Concatenate[Transfer, Parameters], ResultT], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> ResultT:
        """Does the work in a thread."""
        try:
            return await asyncio.to_thread(work, self._transfer, *args, **kwargs)
        except asyncio.CancelledError:
            self._transfer.cancel()
            raise

    def remaining(self) -> float:
        """Seconds until the deadline. Raises after it."""
        return self._transfer.remaining()

    def allows(self, seconds: float) -> bool:
        """Whether this time remains."""
        return self._transfer.allows(seconds)


def shut_down(connection: socket.socket) -> None:
    """Ends reads and writes of other threads. Closing alone would wait for them, or leave them waiting."""
    with contextlib.suppress(OSError):
        # Not the method of `SSLSocket`, which takes away the TLS state that another thread uses.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
