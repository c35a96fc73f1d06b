"""How requests are sent: deadlines, retries, credentials, trace context."""

from __future__ import annotations

import math
import random
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import SupportsFloat, Union

from drayage.faults import Fault, FaultCode

_METADATA_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_ID = re.compile(r"[!-~]{1,128}")
MAX_ID_BYTES = 128
"""Longest id of an operation, a session, an app or a tenant."""

MAX_DOUBLINGS = 64
"""Most times that a delay between two attempts doubles."""
MAX_MESSAGE_SECONDS = 365 * 86_400
"""Longest time that a message may name, a year."""
MAX_NAME_BYTES = 512
"""Longest name of a tool and longest id of a tool call, in bytes of UTF-8."""
_CONTROL_CHARACTER = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")

PemSource = Union[str, bytes, PathLike[str]]
"""A PEM text as bytes, or the path of a PEM file."""


@dataclass(frozen=True)
class RetryPolicy:
    """When a failed attempt is repeated. Every attempt of a request has the same operation id, and all of them fit into
    the request's deadline."""

    max_attempts: int = 10
    """Attempts in all, the first one included."""
    first_delay: float = 0.1
    """Upper limit in seconds of the first delay; it doubles with each attempt."""
    max_delay: float = 5.0
    """Upper limit of every delay that the service does not ask for."""
    max_unavailable_delay: float = 10.0
    """Longest delay in seconds that is waited when the service asks for it with `unavailable`. A longer one means that the
    cause lasts, such as an engine of sandboxes that does not run: the error is raised immediately. The delay of
    `rate_limited` says when the request will be accepted, so only the deadline limits it."""

    def lasts(self, fault: Fault) -> bool:
        """Whether the cause of a fault lasts longer than this policy waits for it."""
        return fault.code == FaultCode.UNAVAILABLE and fault.retry_after > self.max_unavailable_delay

    def delay(self, attempt: int, retry_after: float, draw: Callable[[], float] = random.random) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 1): full jitter, never less than the service asks
        for."""
        # Without a limit, the power overflows in a long outage.
        limit = min(self.max_delay, self.first_delay * 2.0 ** min(attempt - 1, MAX_DOUBLINGS))
        return max(retry_after, limit * draw())


@dataclass(frozen=True)
class CallOptions:
    """Options of one request or of one client; see `with_options`."""

    timeout: float = 60.0
    """Seconds for a request with all its attempts and transfers."""
    operation_id: str | None = None
    """Id of the operation; the same id is the same operation. Unset: a new one for each request."""
    session: str | None = None
    """Session for logs and limits of the services."""
    app: str | None = None
    """App for which the request is made."""
    traceparent: str | None = None
    """W3C trace parent. Unset: that of the current span, where OpenTelemetry is installed."""
    tracestate: str | None = None
    """W3C trace state."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """When failed attempts are repeated."""

    def __post_init__(self) -> None:
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, SupportsFloat):
            raise TypeError(f"`timeout` must be a number of seconds, not {type(self.timeout).__name__}")
        if math.isnan(self.timeout):
            raise ValueError("`timeout` is not a number")
        if not isinstance(self.retry, RetryPolicy):
            raise TypeError(f"`retry` must be a RetryPolicy, not {type(self.retry).__name__}")
        for name in ("operation_id", "session", "app"):
            check_id(name, getattr(self, name))
        for name in ("traceparent", "tracestate"):
            check_metadata(name, getattr(self, name))

    def operation(self) -> str:
        """The operation id of the next request. A new one cannot be guessed."""
        return self.operation_id or str(uuid.uuid4())

    def trace_context(self) -> dict[str, str]:
        """`traceparent` and `tracestate` to send."""
        if self.traceparent is None:
            return _current_trace()
        context = {"traceparent": self.traceparent}
        if self.tracestate is not None:
            context["tracestate"] = self.tracestate
        return context


def _current_trace() -> dict[str, str]:
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return {}
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


@dataclass(frozen=True)
class Tls:
    """Trust and identity of a connection."""

    ca_certificate: PemSource | None = None
    """Authorities that sign the endpoint's certificate. Unset: those of the system."""
    certificate: PemSource | None = None
    """Certificate of this client, for an endpoint that identifies its callers by certificates."""
    private_key: PemSource | None = None
    """Private key of `certificate`."""
    server_name: str | None = None
    """Name that the endpoint's certificate must have. Unset: that of the target."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("`certificate` and `private_key` must be set together")


def check_seconds(name: str, seconds: float) -> float:
    """The seconds, if a message can name them. No service keeps work for longer than a year."""
    if not 0 <= seconds <= MAX_MESSAGE_SECONDS:
        raise ValueError(f"`{name}` is {seconds} seconds, which is not between 0 and {MAX_MESSAGE_SECONDS}")
    return seconds


def message_milliseconds(name: str, seconds: float) -> int:
    """Seconds as milliseconds of a message. A positive time is at least 1 ms, because 0 means the limit of the operator."""
    milliseconds = round(check_seconds(name, seconds) * 1000)
    return max(milliseconds, 1) if seconds > 0 else 0


def message_seconds(name: str, seconds: float) -> int:
    """Seconds as whole seconds of a message, rounded up, because 0 means the default of the operator."""
    return math.ceil(check_seconds(name, seconds))


def check_tool_names(tool: str, tool_call_id: str | None) -> None:
    """Raises `ValueError` for a name of a tool or an id of a call that the services refuse. `None` is an id that the client
    makes."""
    for name, value in (("tool", tool), ("tool_call_id", tool_call_id)):
        if value is None:
            continue
        if not value:
            raise ValueError(f"`{name}` must not be empty")
        if _CONTROL_CHARACTER.search(value):
            raise ValueError(f"`{name}` must not contain control characters")
        if len(value.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise ValueError(f"`{name}` must not be longer than {MAX_NAME_BYTES} bytes")


def check_id(name: str, value: str | None) -> None:
    """Raises for an id that the services refuse. `None` stands for an id that the caller does not set. An empty operation id
    would be a new operation for each repetition."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"`{name}` must be str, not {type(value).__name__}")
    if value is not None and not _ID.fullmatch(value):
        raise ValueError(f"`{name}` must be 1 to {MAX_ID_BYTES} printable ASCII characters without blanks")


def check_metadata(name: str, value: str | None) -> None:
    """Raises if a value cannot be sent as metadata. A token that was read from a file often ends with a line break. The error
    does not contain the value, which may be secret."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"`{name}` must be str, not {type(value).__name__}")
    if value is not None and not _METADATA_VALUE.fullmatch(value):
        raise ValueError(f"`{name}` must be printable ASCII, not empty, and without blanks or line breaks at its ends")


def read_pem(source: PemSource | None) -> bytes | None:
    """The PEM text of a source."""
    if source is None or isinstance(source, bytes):
        return source
    return Path(source).read_bytes()
