"""The operations on sandboxes, each written once for both clients."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Union

from drayage import methods, v1
from drayage._contents import (
    AsyncLocalSource,
    Stored,
    claim_for,
    content_in,
    download,
    is_local_source,
    path_bytes,
    store,
)
from drayage._effects import Operation, call, call_auxiliary, call_removing, download_bytes
from drayage._limits import MAX_INLINE_BYTES
from drayage._operations import ReadSettings, read_document
from drayage.models import (
    CommandChunk,
    CommandEnd,
    CommandResult,
    Document,
    PlacedFile,
    SandboxEntry,
    SandboxFile,
    SandboxListing,
)
from drayage.options import message_milliseconds

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
    return (yield from read_document(source, settings))


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
