"""Publishers on NATS: tool calls as work, and their outcomes. Needs `drayage[nats]`.

A publisher has the identity `publisher-<tenant>` of `deploy/nats/accounts.conf`: it reaches its own tenant only, and not
the store. Arguments above 64 KiB travel over gRPC, and so do results above it: give `dray` to read them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import os
import re
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from types import TracebackType
from typing import Any, TypeVar, Union

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from drayage import methods, v1
from drayage import _operations as operations
from drayage._limits import MAX_INLINE_BYTES
from drayage.aio import AsyncDray
from drayage.faults import (
    DrayageError,
    Fault,
    FaultCode,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    deadline_error,
    error_for,
)
from drayage.models import ResolvedArguments, ToolCallOutcome
from drayage.options import CallOptions, check_id, check_seconds, check_tool_names

ResultT = TypeVar("ResultT")
LOGGER = logging.getLogger("drayage.bus")

WORK_STREAM = "DRAY_WORK"
EVENT_STREAM = "DRAY_EVENT"
PUBLISH_SECONDS = 5.0
"""Longest time for one acknowledgement of the stream."""
ASK_SECONDS = 5.0
"""Time between two requests for an outcome whose event has not arrived."""
REPORT_SECONDS = 5.0
"""Time after the deadline of a call within which a service reports that the call expired."""
RECONNECT_POLL_SECONDS = 0.05
"""Time between two looks at a connection that is being made again."""
_TENANT = re.compile(r"[a-z0-9_-]{1,64}")
EndingEvent = Union[v1.ToolCallResolved, v1.ToolCallRejected, v1.WorkDeadLettered]
"""The message of an event that ends a call."""
_ENDING_KINDS: dict[str, type[EndingEvent]] = {
    "dray.v1.ToolCallResolved": v1.ToolCallResolved,
    "dray.v1.ToolCallRejected": v1.ToolCallRejected,
    "dray.v1.WorkDeadLettered": v1.WorkDeadLettered,
}
_LOST_REPLY_ERRORS = (
    asyncio.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.ConnectionClosedError,
    # The connection was lost after the look at it, and others have filled the buffer of the library.
    nats.errors.OutboundBufferLimitError,
    # A publication without a responder: the stream is missing, or has no leader while the servers restart.
    nats.js.errors.NoStreamResponseError,
)


def _ending_kind(message: Any) -> type[EndingEvent] | None:
    """The message type of an event that ends a call. An event with a header of a stored message was not published by a
    service: it is the reply to a read that names the subject of events for its reply."""
    headers = message.headers or {}
    return None if "Nats-Stream" in headers else _ENDING_KINDS.get(headers.get("Dray-Schema", "").split("/")[0])


def _ended_operation(message: Any) -> str:
    """The id of the operation that an event ends; empty if it is not known."""
    kind = _ending_kind(message)
    if kind is v1.WorkDeadLettered:
        # The header has a new id if the one of the work could not be read with the rest of its headers.
        return v1.WorkDeadLettered.FromString(message.data).operation_id
    return "" if kind is None else (message.headers or {}).get("Dray-Operation", "")


class EndingEvents:
    """The events that end calls of a tenant. One subscription passes each event to the calls that wait for it; with a
    subscription for each call, every waiting call would receive every event.

    A call is listed until its event arrives, `close` is called, or the caller drops its queue."""

    def __init__(self, connection: Any, tenant: str) -> None:
        self._connection = connection
        self._subject = f"dray.event.toolcall.v1.*.{tenant}"
        self._subscribing = asyncio.Lock()
        self._subscription: Any = None
        self._is_confirmed = False
        self._waiting: dict[str, set[weakref.ref[asyncio.Queue[Any]]]] = {}
        self._dropped: deque[str] = deque()

    async def open(self, operation_id: str) -> asyncio.Queue[Any]:
        """The message that ends an operation, from now on. The caller keeps the queue for as long as it waits."""
        self._remove_dropped()
        async with self._subscribing:
            if self._subscription is None:
                self._subscription = await self._connection.subscribe(self._subject, cb=self._dispatch)
            if not self._is_confirmed:
                # The server confirms the subscription before a call is published, so that its end is not missed.
                await self._connection.flush()
                self._is_confirmed = True
        messages: asyncio.Queue[Any] = asyncio.Queue()
        dropped = self._dropped
        # The collector may run this in any thread, so the entry is removed later.
        entry = weakref.ref(messages, lambda _: dropped.append(operation_id))
        self._waiting.setdefault(operation_id, set()).add(entry)
        return messages

    def close(self, operation_id: str, messages: asyncio.Queue[Any]) -> None:
        """Stops collecting messages of `open`. A second call does nothing."""
        entries = self._waiting.get(operation_id, set())
        entries.discard(weakref.ref(messages))
        if not entries:
            self._waiting.pop(operation_id, None)

    def _remove_dropped(self) -> None:
        """Removes the entries of calls whose owners no longer wait."""
        while self._dropped:
            operation_id = self._dropped.popleft()
            entries = {entry for entry in self._waiting.pop(operation_id, set()) if entry() is not None}
            if entries:
                self._waiting[operation_id] = entries

    async def _dispatch(self, message: Any) -> None:
        self._remove_dropped()
        # A call ends once.
        for entry in self._waiting.pop(_ended_operation(message), set()):
            if (messages := entry()) is not None:
                messages.put_nowait(message)


class AsyncPublisher:
    """Publishes the tool calls of one tenant, for asyncio. Made by `connect`."""

    def __init__(
        self, connection: Any, tenant: str, options: CallOptions, dray: AsyncDray | None = None
    ) -> None:
        if not _TENANT.fullmatch(tenant):
            raise ValueError("a tenant on the bus is 1 to 64 of a-z, 0-9, _ and -")
        self._connection = connection
        self._stream = connection.jetstream()
        self._tenant = tenant
        self._options = options
        self._dray = dray
        self._events = EndingEvents(connection, tenant)

    @classmethod
    async def connect(
        cls,
        servers: str | list[str],
        *,
        tenant: str,
        user: str | None = None,
        password: str | None = None,
        options: CallOptions | None = None,
        dray: AsyncDray | None = None,
        **nats_options: Any,
    ) -> AsyncPublisher:
        """Connects as the publisher of a tenant, and raises after the attempts and the time of `options`. A connection that
        is lost later is made again, however long the server is away. `dray`, a client of the same tenant, reads results
        that are larger than a message. `nats_options` go to `nats.connect`: `tls`, `user_credentials` …"""
        options = options or CallOptions()
        user = user or f"publisher-{tenant}"
        settings: dict[str, Any] = {
            "name": user,
            # The shipped permissions let a user receive replies on the inbox with its own name only.
            "inbox_prefix": f"_INBOX_{user}",
            # By default the library closes the connection for good after two minutes without a server.
            "max_reconnect_attempts": -1,
        }
        if password is not None:
            settings.update(user=user, password=password)
        connection = await _connect(servers, {**settings, **nats_options}, options)
        return cls(connection, tenant, options, dray)

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()

    async def __aenter__(self) -> AsyncPublisher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def publish_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, object] | str,
        *,
        tool_call_id: str | None = None,
        nested: bool = False,
        size_limit_bytes: int = 0,
        allow_external_urls: bool | None = None,
        operation_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncPublishedWork:
        """Publishes a tool call. Returns when the stream has stored it. A repetition with the same operation id is the same
        work. `timeout` is the time until the call ends as expired."""
        check_tool_names(tool, tool_call_id)
        check_id("operation_id", operation_id)
        text = operations.arguments_text(arguments)
        if len(text) > MAX_INLINE_BYTES:
            raise TooLargeError(
                Fault(
                    FaultCode.TOO_LARGE,
                    "The arguments are larger than 64 KiB.",
                    "inline_limit",
                    "Publish them over gRPC, with `Dray.publish_tool_call`.",
                )
            )
        settings = operations.ResolveSettings(nested, size_limit_bytes, allow_external_urls)
        operation = self._options.operation() if operation_id is None else operation_id
        call = v1.ToolCallRequested(
            tool_call_id=tool_call_id or f"call-{operation}",
            tool=tool,
            arguments=v1.Content(inline=text),
            options=settings.options(),
        )
        deadline = time.time() + check_seconds("timeout", self._options.timeout if timeout is None else timeout)
        # The subscription is opened first, so that no event is missed between the acknowledgement and the subscription.
        messages = await self._open_events(operation, deadline)
        try:
            duplicate = await self._publish(call, operation, deadline)
        except BaseException:
            self._events.close(operation, messages)
            raise
        return AsyncPublishedWork(self, operation, duplicate, deadline, messages)

    async def ask_outcome(self, operation_id: str) -> ToolCallOutcome | None:
        """The outcome in the ledger, which keeps it for three days. `None` before the end, or if no service replies."""
        check_id("operation_id", operation_id)
        if self._connection.is_closed:
            # The connection is opened again after every loss, so its owner has closed it.
            raise RuntimeError("the publisher is closed")
        if not await self._is_connected_before(time.time() + PUBLISH_SECONDS):
            return None
        request = v1.ToolCallOutcomeRequest(operation_id=operation_id)
        headers = self._headers("ToolCallOutcomeRequest", str(uuid.uuid4()), time.time() + PUBLISH_SECONDS)
        # The last token is the tenant: the server lets a publisher ask for its own only.
        subject = f"{methods.TOOL_CALLS_OUTCOME.subject}.{self._tenant}"
        try:
            reply = await self._connection.request(
                subject, request.SerializeToString(), timeout=PUBLISH_SECONDS, headers=headers
            )
        except _LOST_REPLY_ERRORS:
            return None
        if (reply.headers or {}).get("Dray-Outcome") != "ok":
            raise error_for(Fault.of(v1.Fault.FromString(reply.data)))
        found = v1.ToolCallOutcome.FromString(reply.data)
        if found.HasField("resolved"):
            return await self._outcome_of(operation_id, found.resolved)
        return await self._outcome_of(operation_id, found.rejected) if found.HasField("rejected") else None

    async def missed_outcomes(self, *, wait: float = 2.0) -> AsyncGenerator[ToolCallOutcome, None]:
        """Outcomes since the last call, from the durable consumer that `dray topology apply --publisher` creates. Taking
        the next outcome acknowledges the one before. Outcomes without an acknowledgement are delivered again: after a
        loop that was left early, the next call begins with the last outcome. Ends after `wait` seconds without an
        outcome."""
        check_seconds("wait", wait)
        # One message is requested at a time, because the server would deliver others again while the caller works on
        # the first ones.
        while (message := await self._next_event(wait)) is not None:
            is_taken = False
            try:
                outcome = await self._event_of(message)
                if outcome is not None:
                    yield outcome
                is_taken = True
            finally:
                # Runs even when the caller leaves its loop. Without it the server waits 30 s for the acknowledgement.
                if self._connection.is_closed:
                    pass
                elif is_taken:
                    await message.ack()
                else:
                    # With a response of the server, which could deliver the next message first otherwise.
                    with contextlib.suppress(*_LOST_REPLY_ERRORS):
                        await self._connection.request(message.reply, b"-NAK", timeout=PUBLISH_SECONDS)

    async def _next_event(self, wait: float) -> Any:
        """The next event of the durable consumer; `None` if there is none within `wait` seconds."""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{EVENT_STREAM}.publisher-{self._tenant}"
        # The request is a plain message, because the library treats a missing consumer like one without messages.
        # Without `expires` the server would wait without end.
        request = json.dumps({"batch": 1, "expires": max(int(wait * 1e9), 1_000_000)})
        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, max_msgs=1)
        try:
            await self._connection.publish(subject, request.encode(), reply=inbox)
            reply = await subscription.next_msg(timeout=wait + PUBLISH_SECONDS)
        except _LOST_REPLY_ERRORS as error:
            raise _no_consumer("did not respond") from error
        finally:
            # Runs also when the caller is cancelled. After its message, the subscription has ended already.
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()
        headers = reply.headers or {}
        status = headers.get("Status", "")
        if status in ("404", "408"):
            return None
        if status == "503":
            raise _no_consumer("does not exist, or the server has just lost its leader")
        if status:
            raise _no_consumer(f"refused: {headers.get('Description', status)}")
        return reply

    async def _event_of(self, message: Any) -> ToolCallOutcome | None:
        """The outcome in an event; `None` for an event that ends nothing."""
        kind, operation_id = _ending_kind(message), _ended_operation(message)
        if kind is None or not operation_id:
            return None
        return await self._outcome_of(operation_id, kind.FromString(message.data))

    async def _outcome_of(self, operation_id: str, event: EndingEvent) -> ToolCallOutcome:
        if isinstance(event, v1.WorkDeadLettered):
            # Its message could not be read, so neither the tool nor the id of the call is known.
            state = v1.TERMINAL_STATE_DEAD_LETTERED
            event = v1.ToolCallRejected(operation_id=operation_id, state=state, fault=event.fault)
        if isinstance(event, v1.ToolCallRejected):
            return ToolCallOutcome(operation_id, event.tool_call_id, event.tool, None, event)
        arguments = event.resolved.arguments
        content: bytes | None = arguments.inline
        if arguments.HasField("claim"):
            content = None if self._dray is None else await self._dray.read_bytes(arguments)
        resolved = ResolvedArguments(event.resolved, content)
        return ToolCallOutcome(operation_id, event.tool_call_id, event.tool, resolved, None)

    async def _is_connected_before(self, deadline: float) -> bool:
        """Waits for the connection; `False` if the deadline passes or the connection is closed. The library keeps what is sent
        without a connection, so each attempt would add a copy to its buffer, and a full buffer is an error."""
        while not self._connection.is_connected:
            remaining = deadline - time.time()
            if self._connection.is_closed or remaining <= 0:
                return False
            await asyncio.sleep(min(RECONNECT_POLL_SECONDS, remaining))
        return True

    async def _open_events(self, operation: str, deadline: float) -> asyncio.Queue[Any]:
        async def attempt() -> asyncio.Queue[Any]:
            return await asyncio.wait_for(self._events.open(operation), deadline - time.time())

        return await self._repeat(attempt, deadline)

    async def _publish(self, call: v1.ToolCallRequested, operation: str, deadline: float) -> bool:
        headers = {
            **self._headers("ToolCallRequested", operation, deadline),
            # The id is the same for every repetition, so that the stream stores the message once.
            "Nats-Msg-Id": f"{operation}:toolcall.resolve:0",
        }
        subject = f"dray.work.toolcall.v1.resolve.{self._tenant}"

        async def attempt() -> Any:
            # The call has no `stream=`, because a header that controls the server would make the message a dead letter.
            return await self._stream.publish(
                subject, call.SerializeToString(), timeout=PUBLISH_SECONDS, headers=headers
            )

        try:
            stored = await self._repeat(attempt, deadline)
        except nats.js.errors.APIError as error:
            reason = error.description or "no reason"
            raise UnavailableError(
                Fault(
                    FaultCode.UNAVAILABLE,
                    f"The stream refused the tool call: {reason}.",
                    "stream_refused",
                    retryable=error.code == 503,
                )
            ) from error
        if stored.stream != WORK_STREAM:
            raise DrayageError(
                Fault(FaultCode.INTERNAL, f"The stream {stored.stream} took the call instead of {WORK_STREAM}.")
            )
        return bool(stored.duplicate)

    async def _repeat(self, attempt: Callable[[], Awaitable[ResultT]], deadline: float) -> ResultT:
        """Repeats a step of a publication while its replies are lost. The stream may have stored a message whose reply was
        lost, so each attempt has the same id."""
        number = 0
        while True:
            number += 1
            if not await self._is_connected_before(deadline):
                raise _unconfirmed()
            try:
                return await attempt()
            except _LOST_REPLY_ERRORS as error:
                delay = self._options.retry.delay(number, 0.0)
                if self._connection.is_closed or time.time() + delay >= deadline:
                    raise _unconfirmed() from error
            await asyncio.sleep(delay)

    def _headers(self, kind: str, operation: str, deadline: float) -> dict[str, str]:
        return {
            "Dray-Schema": f"dray.v1.{kind}/1",
            "Dray-Operation": operation,
            "Dray-Deadline": str(int(deadline * 1000)),
            "Dray-Tenant": self._tenant,
            "Content-Type": "application/x-protobuf",
            **self._options.trace_context(),
        }


async def _connect(servers: str | list[str], settings: dict[str, Any], options: CallOptions) -> Any:
    """Connects within the attempts and the time of the options. The library itself would repeat a refused password for
    minutes."""
    deadline = time.monotonic() + options.timeout
    attempt = 0
    while True:
        attempt += 1
        try:
            return await asyncio.wait_for(_connect_once(servers, settings), deadline - time.monotonic())
        except (OSError, nats.errors.Error, asyncio.TimeoutError) as failure:
            error = _connect_error(failure)
            delay = options.retry.delay(attempt, 0.0)
            is_late = time.monotonic() + delay >= deadline
            if not error.fault.retryable or attempt >= options.retry.max_attempts or is_late:
                raise error from failure
        await asyncio.sleep(delay)


async def _connect_once(servers: str | list[str], settings: dict[str, Any]) -> Any:
    connection = Client()
    is_open = False
    failures = 0
    report = settings.get("error_cb")

    async def handle_error(error: Exception) -> None:
        nonlocal failures
        if not is_open:
            failures += 1
            is_refusal = not _connect_error(error).fault.retryable
            if is_refusal or failures >= len(connection.servers):
                # Ends the attempt: without an exception the library would continue with the first server again.
                raise error
            return
        if report is not None:
            await report(error)
        else:
            LOGGER.warning("the connection to NATS failed: %s", str(error) or type(error).__name__)

    try:
        await connection.connect(servers, **{**settings, "error_cb": handle_error})
    except BaseException:
        is_open = True
        await connection.close()
        raise
    is_open = True
    return connection


def _connect_error(failure: Exception) -> DrayageError:
    if isinstance(failure, nats.errors.AuthorizationError) or "authorization" in str(failure).lower():
        return UnauthenticatedError(
            Fault(
                FaultCode.DENIED,
                "The NATS server refuses the user or the password.",
                "unauthenticated",
                "Check the tenant, the user and the password, and that the server has loaded their account.",
            )
        )
    reason = str(failure) or type(failure).__name__
    return UnavailableError(
        Fault(
            FaultCode.UNAVAILABLE,
            f"The NATS server could not be reached: {reason}.",
            "unavailable",
            "Check the address and that the server runs.",
            retryable=True,
        )
    )


def _unconfirmed() -> UnavailableError:
    """The error when a call was not published within its time, as far as the publisher knows."""
    return UnavailableError(
        Fault(
            FaultCode.UNAVAILABLE,
            "The stream did not confirm the tool call.",
            "unconfirmed",
            "Publish it again with the same operation id.",
            retryable=True,
        )
    )


def _no_consumer(reason: str) -> UnavailableError:
    """The error when missed outcomes cannot be requested."""
    return UnavailableError(
        Fault(
            FaultCode.UNAVAILABLE,
            f"The consumer of missed outcomes {reason}.",
            "no_consumer",
            "Check the connection, and that `dray topology apply --publisher TENANT` has created the consumer.",
            retryable=True,
        )
    )


class AsyncPublishedWork:
    """A tool call that the stream has stored."""

    def __init__(
        self,
        publisher: AsyncPublisher,
        operation_id: str,
        duplicate: bool,
        deadline: float,
        messages: asyncio.Queue[Any],
    ) -> None:
        self._publisher = publisher
        self._deadline = deadline
        self._messages = messages
        self.operation_id = operation_id
        """Id that finds the outcome, until three days after the end of the call."""
        self.duplicate = duplicate
        """Whether the stream had stored the call before."""

    async def outcome(self) -> ToolCallOutcome:
        """Waits for the event that ends the call. Also requests the outcome every `ASK_SECONDS`, because the event may have
        been sent before."""
        end = self._deadline + REPORT_SECONDS
        try:
            while True:
                known = await self._known_outcome()
                if known is not None:
                    return known
                next_request = time.time() + ASK_SECONDS
                while (remaining := min(next_request, end) - time.time()) > 0:
                    try:
                        message = await asyncio.wait_for(self._messages.get(), remaining)
                    except asyncio.TimeoutError:
                        break
                    event = await self._publisher._event_of(message)
                    if event is not None:
                        return event
                if time.time() >= end:
                    raise deadline_error()
        finally:
            await self.forget()

    async def _known_outcome(self) -> ToolCallOutcome | None:
        try:
            return await self._publisher.ask_outcome(self.operation_id)
        except DrayageError as error:
            # The error of a service that is stopping or has lost its store is not an outcome: another replica has the call.
            if error.fault.retryable:
                return None
            raise

    async def forget(self) -> None:
        """Stops listening for the outcome, which can still be requested."""
        self._publisher._events.close(self.operation_id, self._messages)


class Publisher:
    """Publishes the tool calls of one tenant, synchronously: `AsyncPublisher` on an event loop in a separate thread. It is
    connected without `dray`, so the outcome of a large result is requested with `Dray.tool_call`."""

    def __init__(
        self,
        servers: str | list[str],
        *,
        tenant: str,
        user: str | None = None,
        password: str | None = None,
        options: CallOptions | None = None,
        **nats_options: Any,
    ) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="drayage-publisher", daemon=True)
        self._thread.start()
        connecting = AsyncPublisher.connect(
            servers, tenant=tenant, user=user, password=password, options=options, **nats_options
        )
        try:
            self._publisher = self._wait(connecting)
        except BaseException:
            self._stop()
            raise

    def publish_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, object] | str,
        *,
        tool_call_id: str | None = None,
        nested: bool = False,
        size_limit_bytes: int = 0,
        allow_external_urls: bool | None = None,
        operation_id: str | None = None,
        timeout: float | None = None,
    ) -> PublishedWork:
        """As `AsyncPublisher.publish_tool_call`."""
        publishing = self._publisher.publish_tool_call(
            tool,
            arguments,
            tool_call_id=tool_call_id,
            nested=nested,
            size_limit_bytes=size_limit_bytes,
            allow_external_urls=allow_external_urls,
            operation_id=operation_id,
            timeout=timeout,
        )
        return PublishedWork(self, self._wait(publishing))

    def ask_outcome(self, operation_id: str) -> ToolCallOutcome | None:
        """As `AsyncPublisher.ask_outcome`."""
        return self._wait(self._publisher.ask_outcome(operation_id))

    def missed_outcomes(self, *, wait: float = 2.0) -> Generator[ToolCallOutcome, None, None]:
        """As `AsyncPublisher.missed_outcomes`."""
        outcomes = self._publisher.missed_outcomes(wait=wait)

        async def find_next() -> ToolCallOutcome | None:
            return await anext(outcomes, None)

        try:
            while (outcome := self._wait(find_next())) is not None:
                yield outcome
        finally:
            self._close_generator(outcomes)

    def close(self) -> None:
        """Closes the connection. A second call does nothing, and neither does one in a process that was forked: the
        connection belongs to the parent."""
        if self._loop.is_closed() or self._is_forked():
            return
        try:
            self._wait(self._publisher.close())
        finally:
            self._stop()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_generator(self, outcomes: AsyncGenerator[ToolCallOutcome, None]) -> None:
        """Ends a generator that the caller has left."""
        if self._loop.is_closed() or self._is_forked():
            return
        closing = asyncio.run_coroutine_threadsafe(outcomes.aclose(), self._loop)
        # The collector of a cycle may run this in the thread of the loop, which must not wait for itself.
        if threading.current_thread() is not self._thread:
            # A generator whose request was interrupted ends by itself, and refuses to be closed.
            with contextlib.suppress(RuntimeError):
                closing.result()

    def _is_forked(self) -> bool:
        """Whether this process is a child of the one that made the publisher, which has the thread of its loop."""
        return self._process != os.getpid()

    def _wait(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        if self._is_forked():
            work.close()
            # Without its thread, the loop would never run the work.
            raise RuntimeError("the publisher was made before `fork`; make a publisher in each process")
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the publisher is closed")
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            # Another thread has closed the publisher.
            raise RuntimeError("the publisher is closed") from None
        except BaseException:
            # The caller was interrupted.
            running.cancel()
            raise

    def _stop(self) -> None:
        # A thread that waits for a task of a loop that has stopped would wait without end.
        asyncio.run_coroutine_threadsafe(_cancel_other_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_other_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class PublishedWork:
    """A tool call that the stream has stored."""

    def __init__(self, publisher: Publisher, work: AsyncPublishedWork) -> None:
        self._publisher = publisher
        self._work = work

    @property
    def operation_id(self) -> str:
        """Id that finds the outcome, until three days after the end of the call."""
        return self._work.operation_id

    @property
    def duplicate(self) -> bool:
        """Whether the stream had stored the call before."""
        return self._work.duplicate

    def outcome(self) -> ToolCallOutcome:
        """Waits for the end of the call."""
        return self._publisher._wait(self._work.outcome())

    def forget(self) -> None:
        """As `AsyncPublishedWork.forget`."""
        self._publisher._wait(self._work.forget())
