"""Sources of the bytes of requests, and the bytes of stored files."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from pathlib import Path
from typing import BinaryIO, TypeGuard, Union

from drayage import methods, v1
from drayage._effects import Operation, call_auxiliary, download_bytes, download_file, hash_source, spool, upload
from drayage._limits import MAX_INLINE_BYTES
from drayage._partial_file import partial_file
from drayage.models import FetchedFile, ResolvedArguments, SandboxFile

Stored = Union[v1.Claim, SandboxFile, FetchedFile, ResolvedArguments]
"""A file in the store, or the result of an operation that contains one."""
LocalSource = Union[bytes, bytearray, memoryview, Path, str, BinaryIO, Iterable[bytes]]
"""Bytes, the path of a local file, or a stream: a file that was opened for reading bytes, or an iterable of bytes. A stream
is copied into a temporary file first, because the store needs size and digest before the bytes."""
AsyncLocalSource = Union[LocalSource, AsyncIterable[bytes]]
"""A local source of the client for asyncio, which also takes asynchronous iterables."""


def is_local_source(source: object) -> TypeGuard[AsyncLocalSource]:
    """Whether a value is a local source and not a stored file."""
    return isinstance(source, bytes | bytearray | memoryview | Path | str) or _is_stream(source)


def _is_stream(source: object) -> TypeGuard[BinaryIO | Iterable[bytes] | AsyncIterable[bytes]]:
    return any(hasattr(source, method) for method in ("read", "__iter__", "__aiter__"))


def path_bytes(path: str | bytes) -> bytes:
    """A path in a sandbox as bytes for a request. Surrogate escapes become the bytes that they stand for."""
    return path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")


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
        if path.is_fifo():
            raise ValueError(f"{path} is a pipe, which cannot be read twice: open it for reading bytes, and give that file")
        return (yield from _store_content(path, name or path.name, media_type, session))
    if isinstance(source, bytes | bytearray | memoryview):
        return (yield from _store_content(bytes(source), name, media_type, session))
    if not _is_stream(source):
        raise TypeError(f"{type(source).__name__} is not a local source: give a path, bytes or a stream")
    path = yield from spool(source)
    try:
        return (yield from _store_content(path, name or _stream_name(source), media_type, session))
    finally:
        path.unlink(missing_ok=True)


def _stream_name(source: object) -> str:
    """The name of the file behind a file object; `file` where it has none."""
    path = getattr(source, "name", None)
    return Path(path).name if isinstance(path, str) else "file"


def _name_text(name: str) -> str:
    """A file name as text for a message. Bytes of the name that are not UTF-8 become replacement characters."""
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in name)


def _store_content(source: bytes | Path, name: str, media_type: str, session: str) -> Operation[v1.Claim]:
    size, digest = yield from hash_source(source)
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
