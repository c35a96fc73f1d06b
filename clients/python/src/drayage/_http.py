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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO
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
            digest, count = hashlib.sha256(), 0
            while chunk := response.read(CHUNK_BYTES):
                _check_deadline(deadline)
                count += len(chunk)
                if count > artifact.size:
                    break
                digest.update(chunk)
                write(chunk)
        if count < artifact.size:
            raise TransientTransferError("the connection ended early")
        if count > artifact.size or digest.digest() != artifact.sha256:
            raise IntegrityError(
                Fault(
                    FaultCode.UNAVAILABLE,
                    "The bytes that arrived are not those of the artifact.",
                    "digest_mismatch",
                    "Fetch the file again; if it happens again, report it to the operator of the store.",
                )
            )

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
                raise UnavailableError(
                    Fault(
                        FaultCode.UNAVAILABLE,
                        "The store could not be reached.",
                        "transfer_failed",
                        "Try again in a moment.",
                        retryable=True,
                    )
                ) from error
            time.sleep(delay)
