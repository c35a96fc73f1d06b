"""Operations as generators: they yield effects, and a driver performs each effect, synchronously or with asyncio.

So each operation is written once, and the two clients differ only in how they wait.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, Union, cast

from google.protobuf.message import Message

from drayage import v1
from drayage._method import Method, ReplyT, RequestT
from drayage.options import MAX_ID_BYTES

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class CallEffect:
    """Send a request, and return its reply."""

    method: Method[Any, Any]
    request: Message
    auxiliary: bool = False
    """Whether the request only prepares or completes the main request of the operation."""
    removes: bool = False
    """Whether the request removes a path. If a repetition finds no path, an earlier attempt has removed it: its reply was
    lost."""


@dataclass(frozen=True)
class UploadEffect:
    """PUT bytes to a presigned URL."""

    url: str
    headers: dict[str, str]
    source: bytes | Path
    size: int


@dataclass(frozen=True)
class DownloadEffect:
    """GET bytes from a presigned URL, compare them with the artifact, and return them or write them to a file."""

    url: str
    artifact: v1.Artifact
    target: Path | None


@dataclass(frozen=True)
class HashEffect:
    """Compute size and SHA-256 of bytes or of a local file."""

    source: bytes | Path


@dataclass(frozen=True)
class SpoolEffect:
    """Copy a stream into a temporary file, and return its path. The caller removes it."""

    source: BinaryIO | Iterable[bytes] | AsyncIterable[bytes]


@dataclass(frozen=True)
class WaitEffect:
    """Wait before the next request. Raises if the deadline is earlier."""

    seconds: float


Effect = Union[CallEffect, UploadEffect, DownloadEffect, HashEffect, SpoolEffect, WaitEffect]
Operation = Generator[Effect, Any, ResultT]


def call(method: Method[RequestT, ReplyT], request: RequestT) -> Operation[ReplyT]:
    """Sends a request."""
    return cast(ReplyT, (yield CallEffect(method, request)))


def call_auxiliary(method: Method[RequestT, ReplyT], request: RequestT) -> Operation[ReplyT]:
    """Sends a request that only prepares or completes the main one. It has a separate operation id."""
    return cast(ReplyT, (yield CallEffect(method, request, auxiliary=True)))


def call_removing(method: Method[RequestT, ReplyT], request: RequestT) -> Operation[ReplyT]:
    """Sends a request that removes a path."""
    return cast(ReplyT, (yield CallEffect(method, request, removes=True)))


class OperationIds:
    """The operation ids of the requests of one operation. The main request has the id of the operation, and the ids of the
    others are derived from it, so that a repetition of the operation has the same ids."""

    def __init__(self, operation_id: str) -> None:
        self._operation_id = operation_id
        self._is_used = False
        self._count = 0

    def next_for(self, effect: CallEffect) -> str:
        """The id of the next request."""
        if not effect.auxiliary and not self._is_used:
            self._is_used = True
            return self._operation_id
        self._count += 1
        derived = f"{self._operation_id}-{self._count}"
        if len(derived) <= MAX_ID_BYTES:
            return derived
        return f"{self._count}-{hashlib.sha256(self._operation_id.encode()).hexdigest()}"


def upload(url: str, headers: dict[str, str], source: bytes | Path, size: int) -> Operation[None]:
    """PUTs bytes."""
    yield UploadEffect(url, headers, source, size)


def download_bytes(url: str, artifact: v1.Artifact) -> Operation[bytes]:
    """GETs an artifact into memory."""
    return cast(bytes, (yield DownloadEffect(url, artifact, None)))


def download_file(url: str, artifact: v1.Artifact, target: Path) -> Operation[None]:
    """GETs an artifact into a file."""
    yield DownloadEffect(url, artifact, target)


def hash_source(source: bytes | Path) -> Operation[tuple[int, bytes]]:
    """Size and SHA-256 of bytes or of a local file."""
    return cast("tuple[int, bytes]", (yield HashEffect(source)))


def spool(source: BinaryIO | Iterable[bytes] | AsyncIterable[bytes]) -> Operation[Path]:
    """Copies a stream into a temporary file, which the caller removes."""
    return cast(Path, (yield SpoolEffect(source)))


def wait(seconds: float) -> Operation[None]:
    """Waits."""
    yield WaitEffect(seconds)
