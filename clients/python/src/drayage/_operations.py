"""The operations of both clients, each written once: its requests, and its result from their replies."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from drayage import methods, v1
from drayage._contents import (
    AsyncLocalSource,
    Stored,
    claim_for,
    content_in,
    content_of,
    is_local_source,
    path_bytes,
    read_bytes,
    store,
)
from drayage._effects import Operation, call, call_auxiliary, download_bytes, wait
from drayage.faults import InvalidParameterError, NotFoundError
from drayage.models import DeliveryReport, Document, FetchedFile, ResolvedArguments, ToolCallOutcome
from drayage.options import check_tool_names

POLL_SECONDS = 0.25
"""Time between two requests for an outcome."""
MAX_WAIT_MS = 20_000
"""Longest time that the service waits before it replies to a request for the outcome of a delivery."""


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
    return (yield from read_document(document_source(source), settings))


def read_document(source: v1.DocumentSource, settings: ReadSettings) -> Operation[Document]:
    """Reads a document from any source as Markdown."""
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
