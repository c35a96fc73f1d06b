"""Bodies over presigned URLs: exact lengths, digests compared, one connection for each transfer.

The URL comes from the service and leads to the store. Redirects are not followed and proxies are not used.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import io
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from drayage import v1
from drayage._effects import DownloadEffect, UploadEffect
from drayage._partial_file import partial_file
from drayage._transfer import Transfer
from drayage._transfer_socket import TransferSocket, connect
from drayage.faults import Fault, FaultCode, IntegrityError, UnavailableError
from drayage.options import RetryPolicy

CHUNK_BYTES = 1 << 20
"""Bytes read at a time."""
MAX_SILENCE_SECONDS = 30.0
"""Longest time without a byte before a transfer counts as broken."""
EARLY_RESPONSE_SECONDS = 1.0
"""Longest wait for the response of a store that stopped reading: one that refuses has sent it before."""


_LOCAL_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_LOCAL_ERROR_NUMBERS = {
    errno.EDQUOT, errno.EFBIG, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOSPC, errno.EROFS
}
"""Errors of the local file system, which another attempt would not change."""


class TransientTransferError(Exception):
    """A transfer that may succeed in another attempt."""


class Transfers:
    """Uploads and downloads, which a `Transfer` limits."""

    def __init__(self, ca_certificate: bytes | None) -> None:
        text = ca_certificate.decode() if ca_certificate is not None else None
        self._context = ssl.create_default_context(cadata=text)

    def upload(self, transfer: Transfer, effect: UploadEffect, retry: RetryPolicy) -> None:
        """PUTs the source."""

        def attempt() -> None:
            with closing(_open_source(effect.source)) as body:
                headers = {"content-length": str(effect.size), **effect.headers}
                chunks = _exact_chunks(body, effect.size, transfer)
                with self._request(transfer, "PUT", effect.url, headers, chunks) as response:
                    status = response.status
            if status >= 500:
                raise TransientTransferError(f"status {status}")
            if status not in (200, 201, 204):
                raise UnavailableError(
                    Fault(FaultCode.UNAVAILABLE, f"The store refused the upload with status {status}.", "upload_refused")
                )

        _repeat(attempt, transfer, retry)

    def download(self, transfer: Transfer, effect: DownloadEffect, retry: RetryPolicy) -> bytes | None:
        """GETs the artifact. Returns its bytes, or with a target writes a file that appears only when it is complete."""
        if effect.target is None:
            parts: list[bytes] = []

            def into_memory() -> None:
                parts.clear()
                self._get(transfer, effect, parts.append)

            _repeat(into_memory, transfer, retry)
            return b"".join(parts)
        target = effect.target
        with partial_file(target) as file:

            def into_file() -> None:
                file.seek(0)
                file.truncate()
                self._get(transfer, effect, file.write)

            _repeat(into_file, transfer, retry)
            file.flush()
            # A caller that has cancelled the download does not expect the file any more.
            transfer.refuse_cancelled()
        return None

    def _get(self, transfer: Transfer, effect: DownloadEffect, write: Callable[[bytes], object]) -> None:
        with self._request(transfer, "GET", effect.url, {}, None) as response:
            body = _VerifiedBody(response, effect.artifact, transfer)
            while chunk := body.read(CHUNK_BYTES):
                write(chunk)

    def open_download(self, transfer: Transfer, url: str, artifact: v1.Artifact, retry: RetryPolicy) -> DownloadStream:
        """GETs an artifact as a stream. The request is not repeated after its response has begun."""
        stream: list[DownloadStream] = []

        def attempt() -> None:
            with ExitStack() as stack:
                response = stack.enter_context(self._request(transfer, "GET", url, {}, None))
                body = _VerifiedBody(response, artifact, transfer)
                stream.append(DownloadStream(body, transfer, stack.pop_all()))

        _repeat(attempt, transfer, retry)
        transfer.on_cancel(stream[-1].close)
        return stream[-1]

    @contextmanager
    def _request(
        self, transfer: Transfer, method: str, url: str, headers: dict[str, str], body: Iterator[bytes] | None
    ) -> Iterator[http.client.HTTPResponse]:
        parts = urlsplit(url)
        context = self._context if parts.scheme == "https" else None
        connection: http.client.HTTPConnection
        if context is None:
            connection = http.client.HTTPConnection(parts.netloc)
        else:
            connection = http.client.HTTPSConnection(parts.netloc, context=context)
        with closing(connection):
            opened = connect(transfer, connection.host, connection.port, context, MAX_SILENCE_SECONDS)
            limited = TransferSocket(opened, transfer, MAX_SILENCE_SECONDS)
            sock: Any = limited
            connection.sock = sock
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            with closing(_response_of(connection, limited, (method, path, body, headers))) as response:
                yield response


def _response_of(
    connection: http.client.HTTPConnection,
    limited: TransferSocket,
    request: tuple[str, str, Iterator[bytes] | None, dict[str, str]],
) -> http.client.HTTPResponse:
    """Sends a request. A store that refuses may respond and close before it has read the body; its status decides then."""
    try:
        connection.request(*request)
    except OSError:
        if not limited.has_refused_bytes:
            raise
        limited.max_silence = EARLY_RESPONSE_SECONDS
        with suppress(OSError, http.client.HTTPException):
            response = connection.getresponse()
            if response.status >= 300:
                return response
            response.close()
        raise
    return connection.getresponse()


class _VerifiedBody:
    """The body of a download, compared with the artifact at its end."""

    def __init__(self, response: http.client.HTTPResponse, artifact: v1.Artifact, transfer: Transfer) -> None:
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
        self._transfer = transfer
        self._digest = hashlib.sha256()
        self._count = 0
        self._announced: int | None = response.length

    def read(self, max_bytes: int) -> bytes:
        """The next bytes, as soon as there are any. Empty at the end, if all bytes were those of the artifact."""
        if self._announced is not None:
            # Before Python 3.12 `read1` would wait for bytes behind the end of the body.
            max_bytes = min(max_bytes, self._announced - self._count)
        chunk = self._response.read1(max_bytes) if max_bytes else b""
        self._transfer.remaining()
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

    def __init__(self, body: _VerifiedBody, transfer: Transfer, connection: ExitStack) -> None:
        self._body = body
        self._transfer = transfer
        self._connection = connection

    def read(self, max_bytes: int) -> bytes:
        """The next bytes. Empty at the end, if all bytes were those of the artifact."""
        try:
            return self._body.read(max_bytes)
        except (TransientTransferError, OSError, ValueError, http.client.HTTPException) as error:
            # The timeout of the socket may have been the deadline.
            self._transfer.remaining()
            raise _broken_transfer() from error

    def close(self) -> None:
        """Closes the connection. A read in another thread is cancelled first: it holds the lock of the response's buffer,
        and closing would wait until its next byte."""
        self._transfer.cancel()
        self._connection.close()


def source_digest(transfer: Transfer, source: bytes | Path) -> tuple[int, bytes]:
    """Size and SHA-256 of a source."""
    digest, size = hashlib.sha256(), 0
    with closing(_open_source(source)) as body:
        while chunk := body.read(CHUNK_BYTES):
            transfer.remaining()
            digest.update(chunk)
            size += len(chunk)
    return size, digest.digest()


def _open_source(source: bytes | Path) -> BinaryIO:
    if isinstance(source, Path):
        return source.open("rb")
    return io.BytesIO(source)


def _exact_chunks(body: BinaryIO, size: int, transfer: Transfer) -> Iterator[bytes]:
    """The announced number of bytes of a file, even if the file grew; a file that shrank fails."""
    remaining = size
    while remaining > 0:
        transfer.remaining()
        chunk = body.read(min(CHUNK_BYTES, remaining))
        if not chunk:
            raise IntegrityError(
                Fault(FaultCode.INVALID_ARGUMENT, "The file became shorter while it was uploaded.", "source_changed")
            )
        remaining -= len(chunk)
        yield chunk


def _repeat(attempt: Callable[[], None], transfer: Transfer, retry: RetryPolicy) -> None:
    number = 0
    while True:
        number += 1
        try:
            attempt()
            return
        except (TransientTransferError, OSError, http.client.HTTPException) as error:
            if _is_local(error):
                raise
            if isinstance(error, ssl.SSLCertVerificationError):
                raise _untrusted_store() from error
            # The timeout of the socket may have been the deadline.
            transfer.remaining()
            delay = retry.delay(number, 0.0)
            if number >= retry.max_attempts or not transfer.allows(delay):
                raise _broken_transfer() from error
            transfer.wait(delay)


def _is_local(error: Exception) -> bool:
    # The subclasses for name lookups and for TLS have numbers with other meanings.
    is_plain = type(error) is OSError and error.errno in _LOCAL_ERROR_NUMBERS
    return is_plain or isinstance(error, _LOCAL_ERRORS)


def _untrusted_store() -> UnavailableError:
    return UnavailableError(
        Fault(
            FaultCode.UNAVAILABLE,
            "The certificate of the store is not trusted.",
            "untrusted_certificate",
            "Pass the authority that signs it as `store_ca`.",
        )
    )


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
