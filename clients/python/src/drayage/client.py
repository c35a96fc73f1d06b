"""The synchronous client."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc

from drayage import _operations as operations
from drayage import v1
from drayage._effects import (
    CallEffect,
    DownloadEffect,
    Effect,
    HashEffect,
    Operation,
    OperationIds,
    UploadEffect,
    call,
)
from drayage._http import Transfers, file_digest
from drayage._method import Method, ReplyT, RequestT
from drayage._operations import LocalSource, SandboxTarget, Stored
from drayage._transport import Attempts, Connection, error_of
from drayage.faults import deadline_error
from drayage.models import (
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
from drayage.options import CallOptions, PemSource, Tls, read_pem

ResultT = TypeVar("ResultT")


class _Channels:
    """One channel for each address, shared by all clients that were made of one."""

    def __init__(self, connection: Connection, store_ca: PemSource | None) -> None:
        self.connection = connection
        self.transfers = Transfers(read_pem(store_ca))
        self._lock = threading.Lock()
        self._open: dict[str, grpc.Channel] = {}

    def find(self, target: str) -> grpc.Channel:
        with self._lock:
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
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()


class Dray:
    """Calls the services of Drayage. May be shared by threads.

    `endpoints` names other addresses for single services, such as `{"dray.v1.Sandboxes": "sandbox-transfer:50051"}`.
    """

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
        self._channels = _Channels(connection, store_ca)
        self.options = options or CallOptions()

    def with_options(self, **changes: Any) -> Dray:
        """The same client with other `CallOptions`: `dray.with_options(timeout=5, operation_id="…")`. It shares the
        connections."""
        other = object.__new__(Dray)
        other._channels = self._channels
        other.options = dataclasses.replace(self.options, **changes)
        return other

    def close(self) -> None:
        """Closes the connections, of clients made with `with_options` too."""
        self._channels.close()

    def __enter__(self) -> Dray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, method: Method[RequestT, ReplyT], request: RequestT) -> ReplyT:
        """Sends any request of `drayage.methods`."""
        return self._run(call(method, request))

    def resolve(
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
        return self._run(operations.resolve(arguments, tool, settings, dial_api_key))

    def publish_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, object] | str,
        *,
        tool_call_id: str | None = None,
        nested: bool = False,
        size_limit_bytes: int = 0,
        allow_external_urls: bool | None = None,
    ) -> PublishedToolCall:
        """Publishes a tool call as work that is not lost; returns when the stream has it."""
        settings = operations.ResolveSettings(nested, size_limit_bytes, allow_external_urls)
        accepted = self._run(operations.publish_tool_call(tool, arguments, settings, tool_call_id))
        return PublishedToolCall(self, accepted.operation_id, accepted.duplicate)

    def tool_call(self, operation_id: str) -> PublishedToolCall:
        """A tool call that was published before, for three days after its end."""
        return PublishedToolCall(self, operation_id, True)

    def fetch(
        self, url: str, *, size_limit_bytes: int = 0, allow_external_urls: bool | None = None
    ) -> FetchedFile:
        """Fetches a resource of the web, within the operator's policy."""
        return self._run(operations.fetch(url, size_limit_bytes, allow_external_urls))

    def read(
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
        return self._run(operations.read(operations.document_source(source), settings))

    def store(self, source: LocalSource, *, name: str = "", media_type: str = "", session: str = "") -> v1.Claim:
        """Puts bytes or a local file into the store; with `session` also into its sandbox, before its next tool call."""
        return self._run(operations.store(source, name, media_type, session))

    def read_bytes(self, stored: Stored | v1.Content) -> bytes:
        """The bytes of a stored file, compared with its digest."""
        return self._run(operations.read_bytes(stored))

    def download(self, stored: Stored | v1.Content, to: str | Path) -> Path:
        """Writes a stored file to a local path, which appears only when every byte was compared."""
        return self._run(operations.download(stored, Path(to)))

    def sandbox(self, address: str) -> Sandbox:
        """A sandbox by its address, such as `docker:web`. The operator lists the tenants that may name sandboxes."""
        return Sandbox(self, SandboxTarget(address=address))

    def session_sandbox(self, session: str) -> Sandbox:
        """The sandbox that is bound to a session."""
        return Sandbox(self, SandboxTarget(session=session))

    def bind_session(
        self, session: str, *, sandbox: str = "", chat: str = "", working_directory: str | bytes = ""
    ) -> v1.Session:
        """Binds a sandbox (`docker:web`), a chat (`telegram:42`), or both to a session."""
        return self._run(operations.bind_session(session, sandbox, chat, working_directory))

    def send(
        self,
        session: str,
        *,
        paths: Sequence[str | bytes] = (),
        files: Sequence[LocalSource | Stored] = (),
        message: str = "",
        as_voice: bool = False,
        as_document: bool = False,
        spoiler: bool = False,
        turn: str = "",
    ) -> Delivery:
        """Sends files to the session's chat: `paths` of its sandbox, and `files` that are local or stored."""
        settings = operations.SendSettings(message, as_voice, as_document, spoiler, turn)
        accepted = self._run(operations.send(session, paths, files, settings))
        return Delivery(self, accepted.delivery_id, accepted.duplicate)

    def delivery(self, delivery_id: str) -> Delivery:
        """A delivery that was sent before."""
        return Delivery(self, delivery_id, True)

    def receipts(self, *, session: str = "", open_only: bool = False, limit: int = 0) -> list[DeliveryReport]:
        """Deliveries of the tenant, newest first."""
        return self._run(operations.receipts(session, open_only, limit))

    def upload_ticket(
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
        """Makes a URL through which one file comes in, once. `to` lets it go on: `sandbox:DIRECTORY` or `chat`, with
        `message` beside it. `lifetime` is in seconds, 3600 unless set and at most 43200."""
        settings = operations.UploadTicketSettings(max_bytes, size, media_type, sha256, name, to, message, lifetime)
        return self._run(operations.upload_ticket(session, settings))

    def download_ticket(
        self, session: str, source: str | Stored, *, name: str = "", lifetime: float = 0
    ) -> IssuedTicket:
        """Makes a URL through which one file goes out, once: a path in the session's sandbox, which must not change
        before, or a stored file."""
        return self._run(operations.download_ticket(session, source, name, lifetime))

    def tickets(self, session: str, *, limit: int = 0) -> list[Ticket]:
        """Tickets of a session, newest first: those that are open, and those that moved bytes within a day."""
        return self._run(operations.tickets(session, limit))

    def ticket(self, ticket_id: str) -> Ticket:
        """One ticket."""
        return self._run(operations.ticket(ticket_id))

    def revoke_ticket(self, ticket_id: str) -> Ticket:
        """Ends a ticket and removes what came in so far. A ticket that was used stays used."""
        return self._run(operations.revoke_ticket(ticket_id))

    def _run(self, operation: Operation[ResultT]) -> ResultT:
        deadline = time.monotonic() + self.options.timeout
        ids = OperationIds(self.options.operation())
        outcome: Any = None
        try:
            while True:
                effect = operation.send(outcome)
                if isinstance(effect, CallEffect):
                    outcome = self._call(effect, ids.next_for(effect), deadline)
                else:
                    outcome = self._do(effect, deadline)
        except StopIteration as end:
            result: ResultT = end.value
            return result
        finally:
            operation.close()

    def _call(self, effect: CallEffect, operation_id: str, deadline: float) -> Any:
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
                return send(effect.request, timeout=timeout, metadata=metadata)
            except grpc.RpcError as failure:
                error = error_of(failure)
            time.sleep(attempts.delay_after(error))

    def _do(self, effect: Effect, deadline: float) -> Any:
        if isinstance(effect, UploadEffect):
            return self._channels.transfers.upload(effect, deadline, self.options.retry)
        if isinstance(effect, DownloadEffect):
            return self._channels.transfers.download(effect, deadline, self.options.retry)
        if isinstance(effect, HashEffect):
            return file_digest(effect.path)
        if isinstance(effect, CallEffect):
            raise AssertionError("calls are made by `_call`")
        if time.monotonic() + effect.seconds >= deadline:
            raise deadline_error()
        time.sleep(effect.seconds)
        return None


class PublishedToolCall:
    """A tool call on its way."""

    def __init__(self, dray: Dray, operation_id: str, duplicate: bool) -> None:
        self._dray = dray
        self.operation_id = operation_id
        """Id to ask for the outcome, for three days after its end."""
        self.duplicate = duplicate
        """Whether it was published before."""

    def outcome(self, timeout: float | None = None) -> ToolCallOutcome:
        """Waits for its end."""
        dray = _with_timeout(self._dray, timeout)
        return dray._run(operations.tool_call_outcome(self.operation_id))


class Delivery:
    """A delivery on its way."""

    def __init__(self, dray: Dray, delivery_id: str, duplicate: bool) -> None:
        self._dray = dray
        self.delivery_id = delivery_id
        """Id to ask for the outcome; the same as in receipts."""
        self.duplicate = duplicate
        """Whether it was sent before."""

    def outcome(self, timeout: float | None = None) -> DeliveryReport:
        """Waits for its end: success only where the platform confirmed every file."""
        dray = _with_timeout(self._dray, timeout)
        return dray._run(operations.delivery_outcome(self.delivery_id))


class Sandbox:
    """Files of one sandbox."""

    def __init__(self, dray: Dray, target: SandboxTarget) -> None:
        self._dray = dray
        self._target = target

    def get(self, path: str | bytes, *, to: str | Path | None = None, max_bytes: int = 0) -> SandboxFile:
        """Copies a file into the store with proof, and with `to` on to a local path."""
        local = None if to is None else Path(to)
        return self._dray._run(operations.sandbox_get(self._target, path, max_bytes, local))

    def put(
        self,
        source: LocalSource | Stored,
        *,
        directory: str | bytes = "",
        name: str = "",
        collision: str = "rename",
        mode: int = 0,
    ) -> PlacedFile:
        """Copies bytes, a local file or a stored file into a directory, with proof. Bytes need a `name`; `collision` is
        `rename`, `fail` or `overwrite`."""
        settings = operations.PlaceSettings(directory, name, collision, mode)
        return self._dray._run(operations.sandbox_put(self._target, source, settings))

    def ls(self, path: str | bytes = ".", *, depth: int = 1, limit: int = 0) -> SandboxListing:
        """Lists a directory."""
        return self._dray._run(operations.sandbox_ls(self._target, path, depth, limit))

    def stat(self, path: str | bytes, *, follow: bool = True) -> SandboxEntry:
        """What a path is."""
        return self._dray._run(operations.sandbox_stat(self._target, path, follow))

    def exec(
        self,
        argv: Sequence[str | bytes],
        *,
        directory: str | bytes = "",
        environment: Mapping[str, str | bytes] | None = None,
        stdin: bytes | Stored = b"",
        timeout: float = 0,
        max_output_bytes: int = 0,
    ) -> CommandResult:
        """Runs a program, whose words no shell reads, and waits for its end. `timeout` in seconds and
        `max_output_bytes` can only lower the operator's limits; the deadline of the request ends the program too. One
        that fails is a result, not an error."""
        settings = operations.ExecSettings(
            directory, environment or {}, stdin, timeout, max_output_bytes
        )
        return self._dray._run(operations.sandbox_exec(self._target, argv, settings))

    def remove(self, path: str | bytes, *, recursive: bool = False) -> None:
        """Removes a file, or a directory with what is in it."""
        self._dray._run(operations.sandbox_remove(self._target, path, recursive))


def _with_timeout(dray: Dray, timeout: float | None) -> Dray:
    # Asking again must not take the id of the operation that is asked about.
    changes: dict[str, Any] = {"operation_id": None}
    if timeout is not None:
        changes["timeout"] = timeout
    return dray.with_options(**changes)
