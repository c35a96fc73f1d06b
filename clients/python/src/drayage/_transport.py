"""gRPC for both clients: targets, metadata, and the errors of failed attempts."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from drayage import methods, v1
from drayage._method import Endpoint
from drayage.faults import (
    DrayageError,
    Fault,
    FaultCode,
    UnauthenticatedError,
    deadline_error,
    error_for,
)
from drayage.options import CallOptions, Tls, check_id, check_metadata, read_pem

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    # Attempts are repeated here, where the operation id and the advice of the fault are known.
    ("grpc.enable_retries", 0),
    # A channel that waits longer than the attempts would fail all of them before it connects.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A long wait for an outcome must not be cut by a silent connection.
    ("grpc.keepalive_time_ms", 60_000),
]
STATUS_DETAILS = "grpc-status-details-bin"
SERVICES = sorted({method.service for method in vars(methods).values() if isinstance(method, Endpoint)})
"""Full names of the services of the contracts, such as `dray.v1.Sandboxes`."""
_GRPC_SCHEME = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|vsock|xds):")
"""Schemes of gRPC (https://github.com/grpc/grpc/blob/master/doc/naming.md); what follows is in the form of the scheme."""
_HOST_AND_PORT = re.compile(r"(\[[^\[\]\s/]+\]|[^\s/:@?#\[\]]+):([0-9]{1,5})")
_LOOPBACK = re.compile(r"localhost|\[::1\]|127(\.[0-9]{1,3}){3}")
MAX_ATTEMPT_SECONDS = 86_400.0
"""Longest time of one attempt. gRPC takes an infinite or very large time for one that has passed."""

_CODES: dict[grpc.StatusCode, FaultCode] = {
    grpc.StatusCode.INVALID_ARGUMENT: FaultCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND: FaultCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED: FaultCode.DENIED,
    grpc.StatusCode.UNAUTHENTICATED: FaultCode.DENIED,
    grpc.StatusCode.OUT_OF_RANGE: FaultCode.TOO_LARGE,
    grpc.StatusCode.UNIMPLEMENTED: FaultCode.UNSUPPORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: FaultCode.RATE_LIMITED,
    grpc.StatusCode.DEADLINE_EXCEEDED: FaultCode.TIMEOUT,
    grpc.StatusCode.UNAVAILABLE: FaultCode.UNAVAILABLE,
    # The peer ended the stream. What the caller cancels does not become a fault.
    grpc.StatusCode.CANCELLED: FaultCode.UNAVAILABLE,
}
_TOO_LARGE = re.compile(r"larger than max|exceeds (hard|soft) limit")
"""Texts of gRPC for a reply that this client refuses, which has the status of a server that is busy."""


@dataclass(frozen=True)
class Connection:
    """Addresses of the services, and credentials of the caller."""

    target: str
    token: str | None = field(default=None, repr=False)
    tenant: str | None = None
    tls: Tls | None = None
    plaintext: bool = False
    endpoints: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for service in self.endpoints:
            if service not in SERVICES:
                raise ValueError(f"`endpoints` has no service `{service}`; the services are {', '.join(SERVICES)}")
        for target in (self.target, *self.endpoints.values()):
            _check_target(target)
        check_metadata("token", self.token)
        check_id("tenant", self.tenant)
        if self.plaintext and self.tls is not None:
            raise ValueError("`tls` and `plaintext` exclude each other")
        if self.plaintext and self.token is not None:
            for target in {self.target, *self.endpoints.values()}:
                if not _is_loopback(target):
                    raise ValueError(f"a token does not travel to {target} without TLS")

    def target_of(self, method: Endpoint[Any, Any]) -> str:
        """The address of the service that has a method."""
        return self.endpoints.get(method.service, self.target)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """TLS credentials of the channels; `None` without TLS."""
        if self.plaintext:
            return None
        tls = self.tls or Tls()
        return grpc.ssl_channel_credentials(
            read_pem(tls.ca_certificate), read_pem(tls.private_key), read_pem(tls.certificate)
        )

    def channel_options(self, target: str) -> list[tuple[str, Any]]:
        """Options of the channel to an address."""
        options = list(CHANNEL_OPTIONS)
        if self.tls and self.tls.server_name:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        if _is_loopback(target):
            # A proxy of the environment would connect to its own machine, and see a token that travels without TLS.
            options.append(("grpc.enable_http_proxy", 0))
        return options

    def metadata(self, options: CallOptions, operation: str) -> tuple[tuple[str, str], ...]:
        """Metadata of a request: caller, operation, session, app and trace context."""
        pairs = {
            "authorization": f"Bearer {self.token}" if self.token else None,
            "dray-tenant": self.tenant,
            "dray-operation": operation,
            "dray-session": options.session,
            "dray-app": options.app,
            **options.trace_context(),
        }
        return tuple((name, value) for name, value in pairs.items() if value is not None)


@dataclass
class Attempts:
    """The attempts of one request within its deadline."""

    options: CallOptions
    deadline: float
    number: int = 0

    def next_timeout(self) -> float:
        """Seconds for the next attempt. Raises after the deadline."""
        self.number += 1
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise deadline_error()
        return min(remaining, MAX_ATTEMPT_SECONDS)

    def has_removed(self, error: DrayageError) -> bool:
        """Whether an earlier attempt has removed the path that this one did not find. The reply of the earlier one was lost."""
        fault = error.fault
        return self.number > 1 and fault.code is FaultCode.NOT_FOUND and fault.detail == "not_found"

    def delay_after(self, error: DrayageError) -> float:
        """Seconds to wait before the next attempt. Raises the error after the last attempt."""
        fault, retry = error.fault, self.options.retry
        delay = retry.delay(self.number, fault.retry_after)
        out_of_time = time.monotonic() + delay >= self.deadline
        if not fault.retryable or retry.lasts(fault) or self.number >= retry.max_attempts or out_of_time:
            raise error
        return delay


def error_of(error: grpc.RpcError) -> DrayageError:
    """The exception for a failed attempt: the fault of the service, or a fault for a failure of the connection."""
    code: grpc.StatusCode = error.code()
    trailing: Any = error.trailing_metadata() or ()
    details = next((value for name, value in trailing if name == STATUS_DETAILS), None)
    fault = _fault_in(details) if isinstance(details, bytes) else None
    if fault is not None:
        return UnauthenticatedError(fault) if code == grpc.StatusCode.UNAUTHENTICATED else error_for(fault)
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return deadline_error()
    message = error.details() or f"The request failed with {code.name}."
    detail, advice = code.name.lower(), ""
    mapped = _CODES.get(code, FaultCode.INTERNAL)
    retryable = mapped in (FaultCode.UNAVAILABLE, FaultCode.RATE_LIMITED)
    # gRPC gives the reasons of a failed handshake as text only. Another attempt meets the same endpoint.
    if "CERTIFICATE_VERIFY_FAILED" in message:
        detail, retryable = "untrusted_certificate", False
        advice = "Check `ca_certificate` and `server_name` of `Tls`."
    elif "WRONG_VERSION_NUMBER" in message:
        detail, retryable = "endpoint_without_tls", False
        message = "The endpoint does not use TLS."
        advice = "Pass `plaintext=True` if that is meant, as for `dray up` on this machine."
    elif code == grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE.search(message):
        mapped, detail, retryable = FaultCode.INTERNAL, "reply_too_large", False
    elif mapped is FaultCode.UNAVAILABLE:
        message = f"The service could not be reached: {message.rstrip('.')}."
        advice = "Check that the address is right and that a system serves gRPC there, as `dray up --grpc ADDRESS` does."
    return error_for(Fault(mapped, message, detail=detail, advice=advice, retryable=retryable))


def incomplete_reply() -> DrayageError:
    """The exception for a request that ended as if it had succeeded, without its reply or with one that is not readable."""
    return error_for(
        Fault(
            FaultCode.UNAVAILABLE,
            "The reply ended before it was complete.",
            detail="incomplete_reply",
            advice="Try again; the same operation id continues the same operation.",
            retryable=True,
        )
    )


def _fault_in(details: bytes) -> Fault | None:
    """The readable fault in a `google.rpc.Status`: field 3 holds `Any` messages with a type in field 1 and a value in field 2."""
    for packed in _length_delimited(details, 3):
        types = _length_delimited(packed, 1)
        if types and types[0].endswith(b"/dray.v1.Fault"):
            try:
                return Fault.of(v1.Fault.FromString(b"".join(_length_delimited(packed, 2))))
            except DecodeError:
                # The caller then uses the status of gRPC.
                return None
    return None


def _length_delimited(data: bytes, number: int) -> list[bytes]:
    """The values of one length-delimited field. Two fields do not justify a dependency on googleapis-common-protos."""
    values: list[bytes] = []
    offset = 0
    while offset < len(data):
        key, offset = _varint(data, offset)
        if key & 7 == 0:
            _, offset = _varint(data, offset)
        elif key & 7 == 2:
            length, offset = _varint(data, offset)
            if key >> 3 == number:
                values.append(data[offset : offset + length])
            offset += length
        else:
            return values
    return values


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(data):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, offset


def _check_target(target: str) -> None:
    """Raises for what is neither a host with its port nor an address with a scheme of gRPC. gRPC takes a port modulo 65536,
    uses 443 where there is none, and looks up everything else as a name for as long as the retries last."""
    if isinstance(target, str):
        if _GRPC_SCHEME.match(target):
            return
        parts = _HOST_AND_PORT.fullmatch(target)
        if parts and 1 <= int(parts[2]) <= 65_535:
            return
    raise ValueError(
        f"`{target}` is not an address such as files.example.org:50051, a host and a port from 1 to 65535 without a scheme"
    )


def _is_loopback(target: str) -> bool:
    return _LOOPBACK.fullmatch(target.rsplit(":", 1)[0]) is not None
