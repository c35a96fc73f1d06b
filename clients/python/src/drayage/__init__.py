"""The client of Drayage: files between the tools of agents, their sandboxes, the web and people.

`Dray` and `AsyncDray` call the services over gRPC. `drayage.bus` publishes tool calls over NATS. `drayage.v1` has the
messages of the contracts, and `drayage.methods` every method for `call`.
"""

from drayage.aio import AsyncDelivery, AsyncDray, AsyncPublishedToolCall, AsyncSandbox
from drayage.client import Delivery, Dray, PublishedToolCall, Sandbox
from drayage.faults import (
    DeadlineError,
    DeniedError,
    DrayageError,
    Fault,
    FaultCode,
    IntegrityError,
    InternalError,
    InvalidArgumentError,
    InvalidParameterError,
    NotFoundError,
    RateLimitedError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from drayage.models import (
    CommandResult,
    DeliveredFile,
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
from drayage.options import CallOptions, RetryPolicy, Tls

__all__ = [
    "AsyncDelivery",
    "AsyncDray",
    "AsyncPublishedToolCall",
    "AsyncSandbox",
    "CallOptions",
    "CommandResult",
    "DeadlineError",
    "DeliveredFile",
    "Delivery",
    "DeliveryReport",
    "DeniedError",
    "Document",
    "Dray",
    "DrayageError",
    "Fault",
    "FaultCode",
    "FetchedFile",
    "IntegrityError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidParameterError",
    "IssuedTicket",
    "NotFoundError",
    "PlacedFile",
    "PublishedToolCall",
    "RateLimitedError",
    "ResolvedArguments",
    "RetryPolicy",
    "Sandbox",
    "SandboxEntry",
    "SandboxFile",
    "SandboxListing",
    "Ticket",
    "Tls",
    "ToolCallOutcome",
    "TooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsupportedError",
]
