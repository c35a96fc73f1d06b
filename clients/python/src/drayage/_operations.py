"""The operations of both clients, each written once: its requests, and its result from their replies."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, TypeGuard, Union

from drayage import methods, v1
from drayage._effects import (
    Operation,
    call,
    call_auxiliary,
    call_removing,
    download_bytes,
    download_file,
    hash_file,
    spool,
    upload,
    wait,
)
from drayage._limits import MAX_INLINE_BYTES
from drayage._partial_file import partial_file
from drayage.faults import InvalidParameterError, NotFoundError
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
from drayage.options import check_tool_names, message_milliseconds, message_seconds

POLL_SECONDS = 0.25
"""Time between two requests for an outcome."""
MAX_WAIT_MS = 20_000
"""Longest time that the service waits before it replies to a request for the outcome of a delivery."""

Stored = Union[v1.Claim, SandboxFile, FetchedFile, ResolvedArguments]
"""A file in the store, or the result of an operation that contains one."""
LocalSource = Union[bytes, bytearray, memoryview, Path, str, BinaryIO, Iterable[bytes]]
"""Bytes, the path of a local file, or a stream: a file that was opened for reading bytes, or an iterable of bytes. A stream
is copied into a temporary file first, because the store needs size and digest before the bytes."""
AsyncLocalSource = Union[LocalSource, AsyncIterable[bytes]]
"""A local source of the client for asyncio, which also takes asynchronous iterables."""
CommandInput = Union[bytes, bytearray, memoryview, Path, BinaryIO, Iterable[bytes], Stored]
"""Standard input of a program. A `str` is refused: it could be the input itself or the path of a file."""
AsyncCommandInput = Union[CommandInput, AsyncIterable[bytes]]
"""Standard input of a program for the client for asyncio."""


@dataclass(frozen=True)
class SandboxTarget:
    """A sandbox, by its address (`docker:web`) or by its session."""

    address: str = ""
    session: str = ""

    def ref(self) -> v1.SandboxRef:
        """The message that names the sandbox in requests."""
        if self.session:
            return v1.SandboxRef(session=self.session)
        return v1.SandboxRef(address=self.address)


@dataclass(frozen=True)
class ResolveSettings:
    """How references are replaced."""

    nested: bool = False
    """Whether strings in nested objects and lists are resolved too."""
    size_limit_bytes: int = 0
    """Most bytes of one file; 0 means the operator's default."""
    allow_external_urls: bool | None = None
    """Whether the app allows fetching external URLs. With `None`, the request contains no policy of the app."""

    def options(self) -> v1.ResolveOptions:
        """The message for requests."""
        policy = None if self.allow_external_urls is None else v1.AppPolicy(enabled=self.allow_external_urls)
        return v1.ResolveOptions(
            nested=self.nested, size_limit_bytes=self.size_limit_bytes, external_url_fetch=policy
        )


def is_local_source(source: object) -> TypeGuard[AsyncLocalSource]:
    """Whether a value is a local source and not a stored file."""
    return isinstance(source, bytes | bytearray | memoryview | Path | str) or _is_stream(source)


def _is_stream(source: object) -> TypeGuard[BinaryIO | Iterable[bytes] | AsyncIterable[bytes]]:
    return any(hasattr(source, method) for method in ("read", "__iter__", "__aiter__"))


def path_bytes(path: str | bytes) -> bytes:
    """A path in a sandbox as bytes for a request. Surrogate escapes become the bytes that they stand for."""
    return path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")


def arguments_text(arguments: Mapping[str, object] | str) -> bytes:
    """Arguments as JSON text. A string is used without changes. Refuses values that JSON does not have."""
    if isinstance(arguments, str):
        return arguments.encode()
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except TypeError as error:
        raise TypeError(f"`arguments` cannot be written as JSON: {error}") from error
    except ValueError as error:
        raise ValueError(f"`arguments` cannot be written as JSON: {error}") from error


def resolve(
    arguments: Mapping[str, object] | str,
    tool: str,
    settings: ResolveSettings,
    dial_api_key: str | None,
) -> Operation[ResolvedArguments]:
    """Replaces the references in arguments."""
    content = yield from content_of(arguments_text(arguments), "arguments.json")
    credentials = None if dial_api_key is None else v1.DialCredentials(api_key=dial_api_key)
    request = v1.ResolveRequest(
        arguments=content, options=settings.options(), credentials=credentials, tool=tool, presign=True
    )
    reply = yield from call(methods.FILES_RESOLVE, request)
    if reply.HasField("invalid"):
        raise InvalidParameterError.of(reply.invalid)
    return (yield from opened_arguments(reply.resolved))


def opened_arguments(resolved: v1.ResolvedArguments) -> Operation[ResolvedArguments]:
    """Resolved arguments with their content, from the message or from the store."""
    if not resolved.arguments.HasField("claim"):
        return ResolvedArguments(resolved, resolved.arguments.inline)
    claim = resolved.arguments.claim
    url = resolved.url.url
    if not url:
        url = (yield from call_auxiliary(methods.ARTIFACTS_OPEN, v1.OpenArtifactRequest(claim=claim))).url
    return ResolvedArguments(resolved, (yield from download_bytes(url, claim.artifact)))


def publish_tool_call(
    tool: str,
    arguments: Mapping[str, object] | str,
    settings: ResolveSettings,
    tool_call_id: str | None,
) -> Operation[v1.ToolCallAccepted]:
    """Publishes a tool call as work."""
    check_tool_names(tool, tool_call_id)
    content = yield from content_of(arguments_text(arguments), "arguments.json")
    request = v1.ToolCallRequested(
        tool_call_id=tool_call_id or f"call-{uuid.uuid4()}",
        tool=tool,
        arguments=content,
        options=settings.options(),
    )
    return (yield from call(methods.TOOL_CALLS_SUBMIT, request))


def tool_call_outcome(operation_id: str) -> Operation[ToolCallOutcome]:
    """Waits for the end of a tool call."""
    request = v1.ToolCallOutcomeRequest(operation_id=operation_id)
    while True:
        found = yield from call(methods.TOOL_CALLS_OUTCOME, request)
        if found.HasField("resolved"):
            event = found.resolved
            arguments = yield from opened_arguments(event.resolved)
            return ToolCallOutcome(operation_id, event.tool_call_id, event.tool, arguments, None)
        if found.HasField("rejected"):
            rejected = found.rejected
            return ToolCallOutcome(operation_id, rejected.tool_call_id, rejected.tool, None, rejected)
        yield from wait(POLL_SECONDS)


def fetch(url: str, size_limit_bytes: int, allow_external_urls: bool | None) -> Operation[FetchedFile]:
    """Fetches a resource of the web."""
    policy = None if allow_external_urls is None else v1.AppPolicy(enabled=allow_external_urls)
    request = v1.FetchRequest(url=url, app_policy=policy, size_limit_bytes=size_limit_bytes)
    return FetchedFile((yield from call(methods.EGRESS_FETCH, request)))


@dataclass(frozen=True)
class ReadSettings:
    """Which part of a document is read, and how."""

    name: str = ""
    range: str = ""
    find: str = ""
    summarize: bool = False
    focus: str = ""
    show_hidden: bool = False
    member: str = ""


def read(source: str | Stored, settings: ReadSettings) -> Operation[Document]:
    """Reads a document as Markdown."""
    if isinstance(source, FetchedFile) and not settings.name:
        # The name chooses among kinds of text; a document inside the request has no other one.
        settings = replace(settings, name=source.name)
    return (yield from _read_document(document_source(source), settings))


def _read_document(source: v1.DocumentSource, settings: ReadSettings) -> Operation[Document]:
    request = v1.ReadAttachmentRequest(
        source=source,
        name=settings.name,
        range=settings.range,
        find=settings.find,
        summarize=settings.summarize,
        focus=settings.focus,
        show_hidden=settings.show_hidden,
        member=settings.member,
    )
    reply = yield from call(methods.READING_READ_ATTACHMENT, request)
    text = yield from read_bytes(reply.output)
    return Document(reply, text.decode())


def document_source(source: str | Stored) -> v1.DocumentSource:
    """The source of a document: a URL, a DIAL file (`files/…`) or a workspace path as text, or a stored file."""
    if not isinstance(source, str):
        content = content_in(source)
        if content.HasField("claim"):
            return v1.DocumentSource(claim=content.claim)
        return v1.DocumentSource(inline=content.inline)
    if "://" in source or source.startswith("files/"):
        return v1.DocumentSource(url=source)
    return v1.DocumentSource(path=source)


def content_in(stored: object) -> v1.Content:
    """The content of a stored file: a claim, or its bytes when they came inside a message. Raises `TypeError` for anything
    else."""
    if isinstance(stored, v1.Content):
        return stored
    if isinstance(stored, FetchedFile):
        return stored.content
    if isinstance(stored, ResolvedArguments):
        return stored.message.arguments
    if isinstance(stored, v1.Claim | SandboxFile):
        return v1.Content(claim=stored if isinstance(stored, v1.Claim) else stored.claim)
    raise TypeError(
        f"{type(stored).__name__} is neither a local source nor a stored file: "
        "give a path, bytes, a stream, or a result of the client"
    )


def claim_for(stored: object) -> Operation[v1.Claim]:
    """The claim of a stored file. Content that came inside a message is put into the store."""
    content = content_in(stored)
    if content.HasField("claim"):
        return content.claim
    name, media_type = "", ""
    if isinstance(stored, FetchedFile):
        # The server declared the type, so it may contain anything; the type becomes a header of the upload.
        is_header = stored.media_type.isascii() and stored.media_type.isprintable()
        name, media_type = stored.name, stored.media_type if is_header else ""
    elif isinstance(stored, ResolvedArguments):
        name, media_type = "arguments.json", "application/json"
    return (yield from store(content.inline, name, media_type, ""))


def read_bytes(stored: Stored | v1.Content) -> Operation[bytes]:
    """The bytes of a file, from the message or from the store."""
    content = content_in(stored)
    if not content.HasField("claim"):
        return content.inline
    url = yield from call_auxiliary(methods.ARTIFACTS_OPEN, v1.OpenArtifactRequest(claim=content.claim))
    return (yield from download_bytes(url.url, content.claim.artifact))


def open_stored(stored: Stored | v1.Content) -> Operation[bytes | tuple[str, v1.Artifact]]:
    """The bytes of a file that is in the message, otherwise its URL and what it must contain."""
    content = content_in(stored)
    if not content.HasField("claim"):
        return content.inline
    url = yield from call_auxiliary(methods.ARTIFACTS_OPEN, v1.OpenArtifactRequest(claim=content.claim))
    return url.url, content.claim.artifact


def download(stored: Stored | v1.Content, target: Path) -> Operation[Path]:
    """Writes a file to a local path, which appears only when every byte was compared."""
    content = content_in(stored)
    if not content.HasField("claim"):
        with partial_file(target) as file:
            file.write(content.inline)
        return target
    url = yield from call_auxiliary(methods.ARTIFACTS_OPEN, v1.OpenArtifactRequest(claim=content.claim))
    yield from download_file(url.url, content.claim.artifact, target)
    return target


def store(source: AsyncLocalSource, name: str, media_type: str, session: str) -> Operation[v1.Claim]:
    """Puts bytes, a local file or a stream into the store."""
    if isinstance(source, str | Path):
        path = Path(source)
        return (yield from _store_file(path, name or path.name, media_type, session))
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        digest = hashlib.sha256(data).digest()
        return (yield from _store_content(data, len(data), digest, name, media_type, session))
    if not _is_stream(source):
        raise TypeError(f"{type(source).__name__} is not a local source: give a path, bytes or a stream")
    path = yield from spool(source)
    try:
        return (yield from _store_file(path, name or _stream_name(source), media_type, session))
    finally:
        path.unlink(missing_ok=True)


def _stream_name(source: object) -> str:
    """The name of the file behind a file object; `file` where it has none."""
    path = getattr(source, "name", None)
    return Path(path).name if isinstance(path, str) else "file"


def _name_text(name: str) -> str:
    """A file name as text for a message. Bytes of the name that are not UTF-8 become replacement characters."""
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in name)


def _store_file(path: Path, name: str, media_type: str, session: str) -> Operation[v1.Claim]:
    size, digest = yield from hash_file(path)
    return (yield from _store_content(path, size, digest, name, media_type, session))


def _store_content(
    source: bytes | Path, size: int, digest: bytes, name: str, media_type: str, session: str
) -> Operation[v1.Claim]:
    request = v1.PrepareUploadRequest(
        session=session, name=_name_text(name) or "file", size=size, sha256=digest, media_type=media_type
    )
    prepared = yield from call_auxiliary(methods.DELIVERIES_PREPARE_UPLOAD, request)
    headers = {header.name: header.value for header in prepared.headers}
    yield from upload(prepared.url.url, headers, source, size)
    finished = yield from call_auxiliary(
        methods.DELIVERIES_FINISH_UPLOAD, v1.FinishUploadRequest(upload_id=prepared.upload_id)
    )
    return finished.claim


def content_of(data: bytes, name: str) -> Operation[v1.Content]:
    """Bytes as content of a message: inline up to `MAX_INLINE_BYTES`, otherwise stored, with a claim."""
    if len(data) <= MAX_INLINE_BYTES:
        return v1.Content(inline=data)
    return v1.Content(claim=(yield from store(data, name, "application/json", "")))


def sandbox_get(target: SandboxTarget, path: str | bytes, max_bytes: int, to: Path | None) -> Operation[SandboxFile]:
    """Copies a file out of a sandbox into the store, and to a local path if one is given."""
    request = v1.GetSandboxFileRequest(sandbox=target.ref(), path=path_bytes(path), max_bytes=max_bytes)
    file = SandboxFile((yield from call(methods.SANDBOXES_GET, request)))
    if to is not None:
        yield from download(file.claim, to)
    return file


def sandbox_read(target: SandboxTarget, path: str | bytes, settings: ReadSettings) -> Operation[Document]:
    """Reads a document of a sandbox as Markdown."""
    source = v1.DocumentSource(sandbox=v1.SandboxPath(sandbox=target.ref(), path=path_bytes(path)))
    return (yield from _read_document(source, settings))


@dataclass(frozen=True)
class PlaceSettings:
    """Directory, name and mode of a file in a sandbox."""

    directory: str | bytes = ""
    name: str = ""
    collision: str = "rename"
    mode: int = 0


def sandbox_put(
    target: SandboxTarget, source: AsyncLocalSource | Stored, settings: PlaceSettings
) -> Operation[PlacedFile]:
    """Copies a local source or a stored file into a sandbox."""
    if is_local_source(source):
        has_name = isinstance(source, Path | str) or isinstance(getattr(source, "name", None), str)
        if not has_name and not settings.name:
            raise ValueError("`name` must be given with bytes and with streams that have none")
        claim = yield from store(source, settings.name, "", "")
    else:
        claim = yield from claim_for(source)
    request = v1.PutSandboxFileRequest(
        sandbox=target.ref(),
        claim=claim,
        directory=path_bytes(settings.directory),
        name=path_bytes(settings.name),
        collision=settings.collision,
        mode=settings.mode,
    )
    return PlacedFile((yield from call(methods.SANDBOXES_PUT, request)))


def sandbox_ls(target: SandboxTarget, path: str | bytes, depth: int, limit: int) -> Operation[SandboxListing]:
    """Lists a directory of a sandbox."""
    request = v1.ListSandboxRequest(sandbox=target.ref(), path=path_bytes(path), depth=depth, limit=limit)
    reply = yield from call(methods.SANDBOXES_LIST, request)
    return SandboxListing([SandboxEntry(entry) for entry in reply.entries], reply.truncated)


def sandbox_stat(target: SandboxTarget, path: str | bytes, follow: bool) -> Operation[SandboxEntry]:
    """The kind and the size of a path in a sandbox."""
    request = v1.StatSandboxRequest(sandbox=target.ref(), path=path_bytes(path), follow=follow)
    return SandboxEntry((yield from call(methods.SANDBOXES_STAT, request)))


def sandbox_remove(target: SandboxTarget, path: str | bytes, recursive: bool) -> Operation[None]:
    """Removes a path of a sandbox."""
    request = v1.RemoveSandboxPathRequest(sandbox=target.ref(), path=path_bytes(path), recursive=recursive)
    yield from call_removing(methods.SANDBOXES_REMOVE, request)


@dataclass(frozen=True)
class ExecSettings:
    """How a program is run."""

    directory: str | bytes = ""
    environment: Mapping[str, str | bytes] = field(default_factory=dict)
    stdin: AsyncCommandInput = b""
    timeout: float = 0
    max_output_bytes: int = 0


def exec_request(
    target: SandboxTarget, argv: Sequence[str | bytes], settings: ExecSettings
) -> Operation[v1.ExecSandboxRequest]:
    """The request for a program. Long input is stored first."""
    if isinstance(argv, str | bytes):
        raise TypeError("`argv` is a list of words; for a line of a shell write ['sh', '-c', line]")
    if isinstance(settings.stdin, str):
        raise TypeError("`stdin` is text: give its bytes (`text.encode()`), or `pathlib.Path(…)` for the content of a file")
    request = v1.ExecSandboxRequest(
        sandbox=target.ref(),
        argv=[path_bytes(word) for word in argv],
        working_directory=path_bytes(settings.directory),
        environment=[
            v1.EnvironmentVariable(name=name, value=path_bytes(value)) for name, value in settings.environment.items()
        ],
        timeout_ms=message_milliseconds("timeout", settings.timeout),
        max_output_bytes=settings.max_output_bytes,
    )
    if isinstance(settings.stdin, bytes) and len(settings.stdin) <= MAX_INLINE_BYTES:
        request.input = settings.stdin
    elif is_local_source(settings.stdin):
        request.input_claim.CopyFrom((yield from store(settings.stdin, "stdin", "", "")))
    elif (content := content_in(settings.stdin)).HasField("claim"):
        request.input_claim.CopyFrom(content.claim)
    else:
        request.input = content.inline
    return request


def sandbox_exec(
    target: SandboxTarget, argv: Sequence[str | bytes], settings: ExecSettings
) -> Operation[CommandResult]:
    """Runs a program in a sandbox."""
    request = yield from exec_request(target, argv, settings)
    reply = yield from call(methods.SANDBOXES_EXEC, request)
    stdout = yield from whole_output(reply.stdout)
    return CommandResult(reply, stdout, (yield from whole_output(reply.stderr)))


def exec_stream_request(
    target: SandboxTarget, argv: Sequence[str | bytes], settings: ExecSettings
) -> Operation[v1.ExecSandboxStreamRequest]:
    """The request for a program whose outputs are streamed while it runs."""
    return v1.ExecSandboxStreamRequest(command=(yield from exec_request(target, argv, settings)))


def command_event(event: v1.ExecSandboxEvent) -> CommandChunk | CommandEnd:
    """Converts a message about a running program."""
    if event.HasField("end"):
        return CommandEnd(event.end)
    if event.HasField("stderr"):
        return CommandChunk("stderr", event.stderr)
    return CommandChunk("stdout", event.stdout)


def whole_output(output: v1.CommandOutput) -> Operation[bytes]:
    """The complete kept output, from the reply or from the store."""
    if not output.HasField("claim"):
        return output.head
    url = yield from call_auxiliary(methods.ARTIFACTS_OPEN, v1.OpenArtifactRequest(claim=output.claim))
    return (yield from download_bytes(url.url, output.claim.artifact))


@dataclass(frozen=True)
class SendSettings:
    """Text and flags of a delivery."""

    message: str = ""
    as_voice: bool = False
    as_document: bool = False
    spoiler: bool = False
    turn: str = ""


def send(
    session: str, paths: Sequence[str | bytes], files: Sequence[AsyncLocalSource | Stored], settings: SendSettings
) -> Operation[v1.DeliveryAccepted]:
    """Sends files of the session's sandbox, local files and stored files to the session's chat."""
    claims: list[v1.Claim] = []
    for file in files:
        if is_local_source(file):
            claims.append((yield from store(file, "", "", "")))
        else:
            claims.append((yield from claim_for(file)))
    request = v1.SendFileRequested(
        session=session,
        paths=[path_bytes(path) for path in paths],
        message=settings.message,
        flags=v1.DeliveryFlags(
            as_voice=settings.as_voice, as_document=settings.as_document, spoiler=settings.spoiler
        ),
        claims=claims,
        turn=settings.turn,
    )
    return (yield from call(methods.DELIVERIES_SEND_FILE, request))


def delivery_outcome(delivery_id: str, is_accepted: bool) -> Operation[DeliveryReport]:
    """Waits for the end of a delivery. The service does not know one that it has accepted until a worker takes it."""
    request = v1.DeliveryOutcomeRequest(delivery_id=delivery_id, wait_ms=MAX_WAIT_MS)
    while True:
        try:
            report = yield from call(methods.DELIVERIES_OUTCOME, request)
            if report.finished:
                return DeliveryReport(report)
        except NotFoundError as error:
            if not is_accepted or error.fault.detail != "not_found":
                raise
        yield from wait(POLL_SECONDS)


def receipts(session: str, open_only: bool, limit: int) -> Operation[list[DeliveryReport]]:
    """Deliveries of the tenant, newest first."""
    request = v1.ListReceiptsRequest(session=session, open_only=open_only, limit=limit)
    reply = yield from call(methods.DELIVERIES_RECEIPTS, request)
    return [DeliveryReport(report) for report in reply.reports]


def bind_session(session: str, sandbox: str, chat: str, working_directory: str | bytes) -> Operation[v1.Session]:
    """Binds a sandbox and a chat (`platform:chat`) to a session."""
    target = None
    if chat:
        platform, _, name = chat.partition(":")
        if not platform or not name:
            raise ValueError("`chat` is a platform and a chat, such as `telegram:42`")
        target = v1.ChatTarget(platform=platform, chat=name)
    request = v1.BindSessionRequest(
        session=session, sandbox=sandbox, chat=target, working_directory=path_bytes(working_directory)
    )
    return (yield from call(methods.SESSIONS_BIND, request))


@dataclass(frozen=True)
class UploadTicketSettings:
    """Conditions of an upload through a ticket, and its destination."""

    max_bytes: int = 0
    size: int | None = None
    media_type: str = ""
    sha256: str = ""
    name: str = ""
    to: str = ""
    message: str = ""
    lifetime: float = 0


def upload_ticket(session: str, settings: UploadTicketSettings) -> Operation[IssuedTicket]:
    """Issues a URL for the upload of one file."""
    destination = None
    if settings.to == "chat":
        destination = v1.TicketDestination(chat_message=settings.message)
    elif settings.to.startswith("sandbox:"):
        destination = v1.TicketDestination(sandbox_directory=settings.to.removeprefix("sandbox:"))
    elif settings.to:
        raise ValueError("`to` is neither `chat` nor `sandbox:DIRECTORY`")
    if len(settings.sha256) not in (0, 64):
        raise ValueError("`sha256` is not 64 hexadecimal digits")
    request = v1.IssueTicketRequest(
        session=session,
        direction=v1.TICKET_DIRECTION_UPLOAD,
        max_bytes=settings.max_bytes,
        size=settings.size,
        media_type=settings.media_type,
        sha256=bytes.fromhex(settings.sha256),
        name=settings.name,
        destination=destination,
        lifetime_s=message_seconds("lifetime", settings.lifetime),
    )
    return IssuedTicket((yield from call(methods.TICKETS_ISSUE, request)))


def download_ticket(session: str, source: str | Stored, name: str, lifetime: float) -> Operation[IssuedTicket]:
    """Issues a URL for the download of one file: a path in the session's sandbox, or a stored file."""
    request = v1.IssueTicketRequest(
        session=session,
        direction=v1.TICKET_DIRECTION_DOWNLOAD,
        name=name,
        lifetime_s=message_seconds("lifetime", lifetime),
    )
    if isinstance(source, str):
        request.sandbox_path = source
    else:
        artifact = (yield from claim_for(source)).artifact
        request.sha256 = artifact.sha256
        request.media_type = artifact.media_type
        request.name = name or artifact.name
    return IssuedTicket((yield from call(methods.TICKETS_ISSUE, request)))


def tickets(session: str, limit: int) -> Operation[list[Ticket]]:
    """Tickets of a session, newest first."""
    reply = yield from call(methods.TICKETS_LIST, v1.ListTicketsRequest(session=session, limit=limit))
    return [Ticket(ticket) for ticket in reply.tickets]


def ticket(ticket_id: str) -> Operation[Ticket]:
    """One ticket."""
    return Ticket((yield from call(methods.TICKETS_INSPECT, v1.InspectTicketRequest(ticket_id=ticket_id))))


def revoke_ticket(ticket_id: str) -> Operation[Ticket]:
    """Ends a ticket."""
    return Ticket((yield from call(methods.TICKETS_REVOKE, v1.RevokeTicketRequest(ticket_id=ticket_id))))
