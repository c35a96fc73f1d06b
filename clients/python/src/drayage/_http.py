"""Bodies over presigned URLs: exact lengths, digests compared, one connection for each transfer.

The URL comes from the service and leads to the store. Redirects are not followed and proxies are not used.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import BinaryIO, TypeGuard
from urllib.parse import urlsplit

from drayage import v1
from drayage._effects import DownloadEffect, UploadEffect
from drayage.faults import Fault, FaultCode, IntegrityError, UnavailableError, deadline_error
from drayage.options import RetryPolicy

CHUNK_BYTES = 1 << 20
"""Bytes read at a time."""
MAX_SILENCE_SECONDS = 30.0
"""Longest time without a byte before a transfer counts as broken."""


class TransientTransferError(Exception):
    """A transfer that may succeed in another attempt."""


class Transfers:
    """Uploads and downloads within a deadline (`time.monotonic`)."""

    def __init__(self, ca_certificate: bytes | None) -> None:
        text = ca_certificate.decode() if ca_certificate is not None else None
        self._context = ssl.create_default_context(cadata=text)

    def upload(self, effect: UploadEffect, deadline: float, retry: RetryPolicy) -> None:
        """PUTs the source."""

        def attempt() -> None:
            with closing(_open_source(effect.source)) as body:
                headers = {"content-length": str(effect.size), **effect.headers}
                chunks = _exact_chunks(body, effect.size, deadline)
                with self._request("PUT", effect.url, headers, chunks, deadline) as response:
                    status = response.status
            if status >= 500:
                raise TransientTransferError(f"status {status}")
            if status not in (200, 201, 204):
                raise UnavailableError(
                    Fault(FaultCode.UNAVAILABLE, f"The store refused the upload with status {status}.", "upload_refused")
                )

        _repeat(attempt, deadline, retry)

    def download(self, effect: DownloadEffect, deadline: float, retry: RetryPolicy) -> bytes | None:
        """GETs the artifact. Returns its bytes, or with a target writes a file that appears only when it is complete."""
        if effect.target is None:
            parts: list[bytes] = []

            def into_memory() -> None:
                parts.clear()
                self._get(effect.url, effect.artifact, parts.append, deadline)

            _repeat(into_memory, deadline, retry)
            return b"".join(parts)
        target = effect.target
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            try:

                def into_file() -> None:
                    file.seek(0)
                    file.truncate()
                    self._get(effect.url, effect.artifact, file.write, deadline)

                _repeat(into_file, deadline, retry)
                file.flush()
                os.replace(file.name, target)
            except BaseException:
                os.unlink(file.name)
                raise
        return None

    def _get(self, url: str, artifact: v1.Artifact, write: Callable[[bytes], object], deadline: float) -> None:
        with self._request("GET", url, {}, None, deadline) as response:
            body = _VerifiedBody(response, artifact, deadline)
            while chunk := body.read(CHUNK_BYTES):
                write(chunk)

    def open_download(self, url: str, artifact: v1.Artifact, deadline: float, retry: RetryPolicy) -> DownloadStream:
        """GETs an artifact as a stream. The request is not repeated after its response has begun."""
        stream: list[DownloadStream] = []

        def attempt() -> None:
            with ExitStack() as stack:
                response = stack.enter_context(self._request("GET", url, {}, None, deadline))
                body = _VerifiedBody(response, artifact, deadline)
                stream.append(DownloadStream(body, stack.pop_all()))

        _repeat(attempt, deadline, retry)
        return stream[-1]

    @contextmanager
    def _request(
        self, method: str, url: str, headers: dict[str, str], body: Iterator[bytes] | None, deadline: float
    ) -> Iterator[http.client.HTTPResponse]:
        parts = urlsplit(url)
        timeout = min(_check_deadline(deadline), MAX_SILENCE_SECONDS)
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(parts.netloc, timeout=timeout, context=self._context)
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
        with closing(connection):
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            connection.request(method, path, body=body, headers=headers)
            with closing(connection.getresponse()) as response:
                yield response


class _VerifiedBody:
    """The body of a download, compared with the artifact at its end."""

    def __init__(self, response: http.client.HTTPResponse, artifact: v1.Artifact, deadline: float) -> None:
        if response.status >= 500:
            raise TransientTransferError(f"status {response.status}")
        if response.status != 200:
            raise UnavailableError(
                Fault(
                    FaultCode.UNAVAILABLE,
                    f"The store refused the download with status {response.status}.",
                    "download_refused",
                )
            )
        self._response = response
        self._artifact = artifact
        self._deadline = deadline
        self._digest = hashlib.sha256()
        self._count = 0

    def read(self, max_bytes: int) -> bytes:
        """The next bytes. Empty at the end, if all bytes were those of the artifact."""
        chunk = self._response.read(max_bytes)
        _check_deadline(self._deadline)
        self._count += len(chunk)
        self._digest.update(chunk)
        size = self._artifact.size
        if not chunk and self._count < size:
            raise TransientTransferError("the connection ended early")
        if self._count > size or (not chunk and self._digest.digest() != self._artifact.sha256):
            raise IntegrityError(
                Fault(
                    FaultCode.UNAVAILABLE,
                    "The bytes that arrived are not those of the artifact.",
                    "digest_mismatch",
                    "Fetch the file again; if it happens again, report it to the operator of the store.",
                )
            )
        return chunk


class DownloadStream:
    """A download that is read in chunks."""

    def __init__(self, body: _VerifiedBody, connection: ExitStack) -> None:
        self._body = body
        self._connection = connection

    def read(self, max_bytes: int) -> bytes:
        """The next bytes. Empty at the end, if all bytes were those of the artifact."""
        try:
            return self._body.read(max_bytes)
        except (TransientTransferError, OSError, ValueError, http.client.HTTPException) as error:
            raise _broken_transfer() from error

    def close(self) -> None:
        """Closes the connection, also while another thread reads from it."""
        self._connection.close()


def spool_source(source: BinaryIO | Iterable[bytes], deadline: float) -> Path:
    """Copies a stream into a temporary file, because the store needs size and digest before the bytes."""
    chunks = iter(lambda: source.read(CHUNK_BYTES), b"") if _is_file_object(source) else iter(source)
    with tempfile.NamedTemporaryFile(prefix="drayage-", delete=False) as file:
        try:
            for chunk in chunks:
                _check_deadline(deadline)
                if not isinstance(chunk, bytes | bytearray | memoryview):
                    raise TypeError(f"a stream must yield bytes, not {type(chunk).__name__}")
                file.write(chunk)
        except BaseException:
            os.unlink(file.name)
            raise
    return Path(file.name)


def _is_file_object(source: object) -> TypeGuard[BinaryIO]:
    return hasattr(source, "read")


def file_digest(path: Path) -> tuple[int, bytes]:
    """Size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.digest()


def _open_source(source: bytes | Path) -> BinaryIO:
    if isinstance(source, Path):
        return source.open("rb")
    return io.BytesIO(source)


def _exact_chunks(body: BinaryIO, size: int, deadline: float) -> Iterator[bytes]:
    """The announced bytes of a file, even when it grew; a file that shrank fails."""
    remaining = size
    while remaining > 0:
        _check_deadline(deadline)
        chunk = body.read(min(CHUNK_BYTES, remaining))
        if not chunk:
            raise IntegrityError(
                Fault(FaultCode.INVALID_ARGUMENT, "The file became shorter while it was uploaded.", "source_changed")
            )
        remaining -= len(chunk)
        yield chunk


def _check_deadline(deadline: float) -> float:
    """Seconds until the deadline. Raises after it."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise deadline_error()
    return remaining


def _repeat(attempt: Callable[[], None], deadline: float, retry: RetryPolicy) -> None:
    number = 0
    while True:
        number += 1
        try:
            attempt()
            return
        except (TransientTransferError, OSError, http.client.HTTPException) as error:
            if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
                raise
            delay = retry.delay(number, 0.0)
            if number >= retry.max_attempts or time.monotonic() + delay >= deadline:
                raise _broken_transfer() from error
            time.sleep(delay)


def _broken_transfer() -> UnavailableError:
    return UnavailableError(
        Fault(
            FaultCode.UNAVAILABLE,
            "The store could not be reached.",
            "transfer_failed",
            "Try again in a moment.",
            retryable=True,
        )
    )
