"""The client for asyncio. Its methods are those of `drayage.client`, to be awaited."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from drayage import _contents as contents
from drayage import _operations as operations
from drayage import _sandbox_operations as sandbox_operations
from drayage import _ticket_operations as ticket_operations
from drayage import methods, v1
from drayage._arguments import checked, checked_method
from drayage._channels import AsyncChannels
from drayage._contents import AsyncLocalSource, Stored
from drayage._effects import (
    CallEffect,
    DownloadEffect,
    Effect,
    HashEffect,
    Operation,
    OperationIds,
    SpoolEffect,
    UploadEffect,
    call,
)
from drayage._http import CHUNK_BYTES, source_digest
from drayage._method import Method, ReplyT, RequestT, StreamMethod
from drayage._sandbox_operations import AsyncCommandInput, SandboxTarget
from drayage._stream_copy import AsyncStreamCopy
from drayage._streams import AsyncStream
from drayage._transfer import AsyncTransfer
from drayage._transport import Attempts, Connection, incomplete_reply
from drayage.faults import DrayageError, deadline_error
from drayage.models import (
    CommandChunk,
    CommandEnd,
    CommandResult,
    DeliveryReport,
    Document,
    FetchedFile,
    IssuedTicket,
    PlacedFile,
    ResolvedArguments,
    SandboxEntry,
    SandboxFile,
    SandboxListing,
    Ticket,
    ToolCallOutcome,
)
from drayage.options import CallOptions, PemSource, Tls, check_id

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@checked
class AsyncDray:
    """Calls the services of Drayage. Belongs to one event loop.

    `endpoints` names other addresses for single services, such as `{"dray.v1.Sandboxes": "sandbox-transfer:50051"}`.
    """

    @checked_method
    def __init__(
        self,
        target: str,
        *,
        token: str | None = None,
        tenant: str | None = None,
        tls: Tls | None = None,
        plaintext: bool = False,
        endpoints: Mapping[str, str] | None = None,
        store_ca: PemSource | None = None,
        options: CallOptions | None = None,
    ) -> None:
        connection = Connection(target, token, tenant, tls, plaintext, endpoints or {})
        self._channels = AsyncChannels(connection, store_ca)
        self.options = options or CallOptions()

    def with_options(self, **changes: Any) -> AsyncDray:
        """The same client with other `CallOptions`: `dray.with_options(timeout=5, operation_id="…")`. It shares the
        connections."""
        other = object.__new__(AsyncDray)
        other._channels = self._channels
        other.options = dataclasses.replace(self.options, **changes)
        return other

    async def close(self) -> None:
        """Closes the connections, which clients of `with_options` share."""
        await self._channels.close()

    async def __aenter__(self) -> AsyncDray:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def call(self, method: Method[RequestT, ReplyT], request: RequestT) -> ReplyT:
        """Sends any request of `drayage.methods`."""
        return await self._run(call(method, request))

    async def resolve(
        self,
        arguments: Mapping[str, object] | str,
        *,
        tool: str = "",
        nested: bool = False,
        size_limit_bytes: int = 0,
        allow_external_urls: bool | None = None,
        dial_api_key: str | None = None,
    ) -> ResolvedArguments:
        """Replaces `file:{base64|text|url}::…` arguments of a tool call by their content."""
        settings = operations.ResolveSettings(nested, size_limit_bytes, allow_external_urls)
        return await self._run(operations.resolve(arguments, tool, settings, dial_api_key))

    async def publish_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, object] | str,
        *,
        tool_call_id: str | None = None,
        nested: bool = False,
        size_limit_bytes: int = 0,
        allow_external_urls: bool | None = None,
    ) -> AsyncPublishedToolCall:
        """Publishes a tool call as work that is not lost. Returns when the stream has stored it."""
        settings = operations.ResolveSettings(nested, size_limit_bytes, allow_external_urls)
        accepted = await self._run(operations.publish_tool_call(tool, arguments, settings, tool_call_id))
        return AsyncPublishedToolCall(self, accepted.operation_id, accepted.duplicate)

    def tool_call(self, operation_id: str) -> AsyncPublishedToolCall:
        """A tool call that was published before, for three days after its end."""
        check_id("operation_id", operation_id)
        return AsyncPublishedToolCall(self, operation_id, True)

    async def fetch(
        self, url: str, *, size_limit_bytes: int = 0, allow_external_urls: bool | None = None
    ) -> FetchedFile:
        """Fetches a resource of the web, within the operator's policy."""
        return await self._run(operations.fetch(url, size_limit_bytes, allow_external_urls))

    async def read(
        self,
        source: str | Stored,
        *,
        name: str = "",
        range: str = "",
        find: str = "",
        summarize: bool = False,
        focus: str = "",
        show_hidden: bool = False,
        member: str = "",
    ) -> Document:
        """Reads a document as Markdown: a URL, a DIAL file, a path of the service's workspace, or a stored file."""
        settings = operations.ReadSettings(name, range, find, summarize, focus, show_hidden, member)
        return await self._run(operations.read(source, settings))

    async def store(self, source: AsyncLocalSource, *, name: str = "", media_type: str = "", session: str = "") -> v1.Claim:
        """Puts a local source into the store; with `session` also into its sandbox, before its next tool call."""
        return await self._run(contents.store(source, name, media_type, session))

    async def read_bytes(self, stored: Stored | v1.Content) -> bytes:
        """The bytes of a stored file, compared with its digest."""
        return await self._run(contents.read_bytes(stored))

    async def open(self, stored: Stored | v1.Content) -> AsyncStream[bytes]:
        """The bytes of a stored file in chunks, within the deadline. Raises at the end if the digest differs: the bytes are
        verified only when the loop has ended without an error."""
        deadline = time.monotonic() + self.options.timeout
        ids = OperationIds(self.options.operation())
        opened = await self._drive(contents.open_stored(stored), ids, deadline)
        if isinstance(opened, bytes):
            yield opened
            return
        transfers = self._channels.transfers
        stream = await AsyncTransfer(deadline).run(transfers.open_download, *opened, self.options.retry)
        try:
            while chunk := await asyncio.to_thread(stream.read, CHUNK_BYTES):
                yield chunk
        finally:
            stream.close()

    async def download(self, stored: Stored | v1.Content, to: str | Path) -> Path:
        """Writes a stored file to a local path, which appears only when every byte was compared."""
        return await self._run(contents.download(stored, Path(to)))

    def sandbox(self, address: str) -> AsyncSandbox:
        """A sandbox by its address, such as `docker:web`. The operator lists the tenants that may name sandboxes."""
        return AsyncSandbox(self, SandboxTarget(address=address))

    def session_sandbox(self, session: str) -> AsyncSandbox:
        """The sandbox that is bound to a session."""
        return AsyncSandbox(self, SandboxTarget(session=session))

    async def bind_session(
        self, session: str, *, sandbox: str = "", chat: str = "", working_directory: str | bytes = ""
    ) -> v1.Session:
        """Binds a sandbox (`docker:web`), a chat (`telegram:42`), or both to a session."""
        return await self._run(operations.bind_session(session, sandbox, chat, working_directory))

    async def send(
        self,
        session: str,
        *,
        paths: Sequence[str | bytes] = (),
        files: Sequence[AsyncLocalSource | Stored] = (),
        message: str = "",
        as_voice: bool = False,
        as_document: bool = False,
        spoiler: bool = False,
        turn: str = "",
    ) -> AsyncDelivery:
        """Sends files to the session's chat: `paths` of its sandbox, and `files` that are local or stored."""
        settings = operations.SendSettings(message, as_voice, as_document, spoiler, turn)
        accepted = await self._run(operations.send(session, paths, files, settings))
        return AsyncDelivery(self, accepted.delivery_id, accepted.duplicate, is_accepted=True)

    def delivery(self, delivery_id: str) -> AsyncDelivery:
        """A delivery that was sent before."""
        check_id("delivery_id", delivery_id)
        return AsyncDelivery(self, delivery_id, True)

    async def receipts(self, *, session: str = "", open_only: bool = False, limit: int = 0) -> list[DeliveryReport]:
        """Deliveries of the tenant, newest first."""
        return await self._run(operations.receipts(session, open_only, limit))

    async def upload_ticket(
        self,
        session: str,
        *,
        max_bytes: int = 0,
        size: int | None = None,
        media_type: str = "",
        sha256: str = "",
        name: str = "",
        to: str = "",
        message: str = "",
        lifetime: float = 0,
    ) -> IssuedTicket:
        """Issues a URL for one upload of one file. `to` forwards the file to `sandbox:DIRECTORY`, or to `chat` with
        `message`. `lifetime` is in seconds, 3600 unless set and at most 43200."""
        settings = ticket_operations.UploadTicketSettings(
            max_bytes, size, media_type, sha256, name, to, message, lifetime
        )
        return await self._run(ticket_operations.upload_ticket(session, settings))

    async def download_ticket(
        self, session: str, source: str | Stored, *, name: str = "", lifetime: float = 0
    ) -> IssuedTicket:
        """Issues a URL for one download of one file: a path in the session's sandbox, whose file must not change
        before the download, or a stored file."""
        return await self._run(ticket_operations.download_ticket(session, source, name, lifetime))

    async def tickets(self, session: str, *, limit: int = 0) -> list[Ticket]:
        """Tickets of a session, newest first: those that are open, and those that moved bytes within a day."""
        return await self._run(ticket_operations.tickets(session, limit))

    async def ticket(self, ticket_id: str) -> Ticket:
        """One ticket."""
        return await self._run(ticket_operations.ticket(ticket_id))

    async def revoke_ticket(self, ticket_id: str) -> Ticket:
        """Ends a ticket and removes the bytes that were uploaded so far. A used ticket stays used."""
        return await self._run(ticket_operations.revoke_ticket(ticket_id))

    async def _run(self, operation: Operation[ResultT]) -> ResultT:
        deadline = time.monotonic() + self.options.timeout
        return await self._drive(operation, OperationIds(self.options.operation()), deadline)

    async def _stream(
        self,
        method: StreamMethod[RequestT, ReplyT],
        preparation: Operation[RequestT],
        convert: Callable[[ReplyT], ItemT],
    ) -> AsyncStream[ItemT]:
        deadline = time.monotonic() + self.options.timeout
        operation_id = self.options.operation()
        request = await self._drive(preparation, OperationIds(operation_id), deadline)
        connection = self._channels.connection
        send = self._channels.find(connection.target_of(method)).unary_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        metadata = connection.metadata(self.options, operation_id)
        attempts = Attempts(self.options, deadline)
        last: ItemT | None = None
        while True:
            replies = send(request, timeout=attempts.next_timeout(), metadata=metadata)
            try:
                async for reply in replies:
                    if reply is None:
                        break
                    last = convert(reply)
                    yield last
                if isinstance(last, CommandEnd):
                    return
                error = incomplete_reply()
            except AsyncChannels.FAILURES as failure:
                error = self._channels.error_of(failure)
            finally:
                # Runs even when the caller leaves its loop: cancelling ends the program.
                replies.cancel()
            if last is not None:
                raise error
            await asyncio.sleep(attempts.delay_after(error))

    async def _drive(self, operation: Operation[ResultT], ids: OperationIds, deadline: float) -> ResultT:
        try:
            effect = operation.send(None)
            while True:
                try:
                    outcome = await self._perform(effect, ids, deadline)
                except DrayageError as error:
                    # The operation may know what the error means.
                    effect = operation.throw(error)
                else:
                    effect = operation.send(outcome)
        except StopIteration as end:
            result: ResultT = end.value
            return result
        finally:
            operation.close()

    async def _perform(self, effect: Effect, ids: OperationIds, deadline: float) -> Any:
        if isinstance(effect, CallEffect):
            return await self._call(effect, ids.next_for(effect), deadline)
        return await self._do(effect, deadline)

    async def _call(self, effect: CallEffect, operation_id: str, deadline: float) -> Any:
        connection, method = self._channels.connection, effect.method
        channel = self._channels.find(connection.target_of(method))
        send = channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        metadata = connection.metadata(self.options, operation_id)
        attempts = Attempts(self.options, deadline)
        while True:
            timeout = attempts.next_timeout()
            try:
                reply = await send(effect.request, timeout=timeout, metadata=metadata)
                if reply is not None:
                    return reply
                error = incomplete_reply()
            except AsyncChannels.FAILURES as failure:
                error = self._channels.error_of(failure)
                if effect.removes and attempts.has_removed(error):
                    return method.reply()
            await asyncio.sleep(attempts.delay_after(error))

    async def _do(self, effect: Effect, deadline: float) -> Any:
        transfers, transfer = self._channels.transfers, AsyncTransfer(deadline)
        if isinstance(effect, UploadEffect):
            return await transfer.run(transfers.upload, effect, self.options.retry)
        if isinstance(effect, DownloadEffect):
            return await transfer.run(transfers.download, effect, self.options.retry)
        if isinstance(effect, HashEffect):
            return await transfer.run(source_digest, effect.source)
        if isinstance(effect, SpoolEffect):
            return await AsyncStreamCopy(transfer).make(effect.source)
        if isinstance(effect, CallEffect):
            raise AssertionError("calls are made by `_call`")
        if time.monotonic() + effect.seconds >= deadline:
            raise deadline_error()
        await asyncio.sleep(effect.seconds)
        return None


@checked
class AsyncPublishedToolCall:
    """A published tool call."""

    def __init__(self, dray: AsyncDray, operation_id: str, duplicate: bool) -> None:
        self._dray = dray
        self.operation_id = operation_id
        """Id that finds the outcome, until three days after the end of the call."""
        self.duplicate = duplicate
        """Whether a call with this id was published before."""

    async def outcome(self, timeout: float | None = None) -> ToolCallOutcome:
        """Waits for the end of the call."""
        dray = _with_timeout(self._dray, timeout)
        return await dray._run(operations.tool_call_outcome(self.operation_id))


@checked
class AsyncDelivery:
    """A delivery that was sent."""

    def __init__(self, dray: AsyncDray, delivery_id: str, duplicate: bool, is_accepted: bool = False) -> None:
        self._dray = dray
        self._is_accepted = is_accepted
        self.delivery_id = delivery_id
        """Id that finds the outcome; the same as in receipts."""
        self.duplicate = duplicate
        """Whether a delivery with this id was sent before."""

    async def outcome(self, timeout: float | None = None) -> DeliveryReport:
        """Waits for the end of the delivery, a success only if the platform confirmed every file."""
        dray = _with_timeout(self._dray, timeout)
        return await dray._run(operations.delivery_outcome(self.delivery_id, self._is_accepted))


@checked
class AsyncSandbox:
    """Files of one sandbox."""

    def __init__(self, dray: AsyncDray, target: SandboxTarget) -> None:
        self._dray = dray
        self._target = target

    async def read(
        self,
        path: str | bytes,
        *,
        name: str = "",
        range: str = "",
        find: str = "",
        summarize: bool = False,
        focus: str = "",
        show_hidden: bool = False,
        member: str = "",
    ) -> Document:
        """Reads a document of the sandbox as Markdown."""
        settings = operations.ReadSettings(name, range, find, summarize, focus, show_hidden, member)
        return await self._dray._run(sandbox_operations.sandbox_read(self._target, path, settings))

    async def get(self, path: str | bytes, *, to: str | Path | None = None, max_bytes: int = 0) -> SandboxFile:
        """Copies a file into the store with proof, and with `to` also to a local path."""
        local = None if to is None else Path(to)
        return await self._dray._run(sandbox_operations.sandbox_get(self._target, path, max_bytes, local))

    async def put(
        self,
        source: AsyncLocalSource | Stored,
        *,
        directory: str | bytes = "",
        name: str = "",
        collision: str = "rename",
        mode: int = 0,
    ) -> PlacedFile:
        """Copies a local source or a stored file into a directory, with proof. Bytes need a `name`; `collision` is
        `rename`, `fail` or `overwrite`."""
        settings = sandbox_operations.PlaceSettings(directory, name, collision, mode)
        return await self._dray._run(sandbox_operations.sandbox_put(self._target, source, settings))

    async def ls(self, path: str | bytes = ".", *, depth: int = 1, limit: int = 0) -> SandboxListing:
        """Lists a directory."""
        return await self._dray._run(sandbox_operations.sandbox_ls(self._target, path, depth, limit))

    async def stat(self, path: str | bytes, *, follow: bool = True) -> SandboxEntry:
        """The kind and the size of a path."""
        return await self._dray._run(sandbox_operations.sandbox_stat(self._target, path, follow))

    async def exec(
        self,
        argv: Sequence[str | bytes],
        *,
        directory: str | bytes = "",
        environment: Mapping[str, str | bytes] | None = None,
        stdin: AsyncCommandInput = b"",
        timeout: float = 0,
        max_output_bytes: int = 0,
    ) -> CommandResult:
        """Runs a program without a shell, and waits for its end. `timeout` in seconds and
        `max_output_bytes` can only lower the operator's limits; the deadline of the request ends the program too. A
        program that fails is a result, not an error."""
        settings = sandbox_operations.ExecSettings(
            directory, environment or {}, stdin, timeout, max_output_bytes
        )
        return await self._dray._run(sandbox_operations.sandbox_exec(self._target, argv, settings))

    def exec_stream(
        self,
        argv: Sequence[str | bytes],
        *,
        directory: str | bytes = "",
        environment: Mapping[str, str | bytes] | None = None,
        stdin: AsyncCommandInput = b"",
        timeout: float = 0,
        max_output_bytes: int = 0,
    ) -> AsyncStream[CommandChunk | CommandEnd]:
        """Runs a program as `exec` does, and returns its outputs while it writes them: chunks, then one `CommandEnd`. A
        program waits for a slow reader, and ends when its reader stops reading or closes the iterator."""
        settings = sandbox_operations.ExecSettings(
            directory, environment or {}, stdin, timeout, max_output_bytes
        )
        request = sandbox_operations.exec_stream_request(self._target, argv, settings)
        return self._dray._stream(methods.SANDBOXES_EXEC_STREAM, request, sandbox_operations.command_event)

    async def remove(self, path: str | bytes, *, recursive: bool = False) -> None:
        """Removes a file, or a directory with its content."""
        await self._dray._run(sandbox_operations.sandbox_remove(self._target, path, recursive))


def _with_timeout(dray: AsyncDray, timeout: float | None) -> AsyncDray:
    # A request for the outcome must not reuse the id of the operation itself.
    changes: dict[str, Any] = {"operation_id": None}
    if timeout is not None:
        changes["timeout"] = timeout
    return dray.with_options(**changes)
