"""Failures: what happened, what to do, and whether the same request may succeed later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from drayage import v1


class FaultCode(str, Enum):
    """The closed set of failure codes; `detail` of a fault is more precise."""

    INVALID_ARGUMENT = "invalid_argument"
    NOT_FOUND = "not_found"
    DENIED = "denied"
    TOO_LARGE = "too_large"
    UNSUPPORTED = "unsupported"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


_CODES: dict[int, FaultCode] = {
    v1.FAULT_CODE_INVALID_ARGUMENT: FaultCode.INVALID_ARGUMENT,
    v1.FAULT_CODE_NOT_FOUND: FaultCode.NOT_FOUND,
    v1.FAULT_CODE_DENIED: FaultCode.DENIED,
    v1.FAULT_CODE_TOO_LARGE: FaultCode.TOO_LARGE,
    v1.FAULT_CODE_UNSUPPORTED: FaultCode.UNSUPPORTED,
    v1.FAULT_CODE_RATE_LIMITED: FaultCode.RATE_LIMITED,
    v1.FAULT_CODE_TIMEOUT: FaultCode.TIMEOUT,
    v1.FAULT_CODE_UNAVAILABLE: FaultCode.UNAVAILABLE,
}


@dataclass(frozen=True)
class Fault:
    """A failure as the service reports it. Message and advice may be shown to a model."""

    code: FaultCode
    message: str
    """One sentence on what happened."""
    detail: str = ""
    """The precise reason, such as `ssrf_blocked`; empty when the code is precise enough."""
    advice: str = ""
    """One sentence on what to do next; empty when there is nothing to advise."""
    retryable: bool = False
    """Whether the same request may succeed later."""
    retry_after: float = 0.0
    """Seconds to wait before the same request is sent again."""
    trace_id: str = ""
    """Trace id to quote to an operator."""

    @classmethod
    def of(cls, message: v1.Fault) -> Fault:
        """Reads the message of the contracts. A code of a newer service counts as `internal`."""
        return cls(
            code=_CODES.get(message.code, FaultCode.INTERNAL),
            message=message.message,
            detail=message.detail,
            advice=message.advice,
            retryable=message.retryable,
            retry_after=message.retry_after_ms / 1000,
            trace_id=message.trace_id,
        )


class DrayageError(Exception):
    """A request that failed after all attempts; `fault` contains the reason and the advice."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.message} {fault.advice}".strip())
        self.fault = fault

    def __reduce__(self) -> tuple[Callable[..., DrayageError], tuple[Any, ...], dict[str, Any]]:
        # An exception is otherwise made again from its text, which fails: a process pool whose worker raised it hangs.
        return type(self), (self.fault,), self.__dict__


class InvalidArgumentError(DrayageError):
    """The request is wrong; sending it again changes nothing."""


class NotFoundError(DrayageError):
    """The resource that the request names does not exist."""


class DeniedError(DrayageError):
    """A policy or a permission refuses the request."""


class UnauthenticatedError(DeniedError):
    """The endpoint does not know the caller: no token, a wrong one, or an unknown certificate."""


class TooLargeError(DrayageError):
    """A size limit was exceeded."""


class UnsupportedError(DrayageError):
    """The service does not offer what the request asks for."""


class RateLimitedError(DrayageError):
    """Too many requests at one time; the same request may succeed later."""


class DeadlineError(DrayageError):
    """The deadline passed. Whether the request had effects is unknown: ask with the same operation id."""


class UnavailableError(DrayageError):
    """A service, or another system that it needs, could not be reached or failed."""


class InternalError(DrayageError):
    """A defect of the service."""


class IntegrityError(DrayageError):
    """Bytes that arrived are not those that were announced."""


class InvalidParameterError(DrayageError):
    """An argument of a tool call that the model can correct."""

    def __init__(self, fault: Fault, *, parameter: str, pointer: str, tool_message: str) -> None:
        super().__init__(fault)
        self.parameter = parameter
        """Name of the top-level argument."""
        self.pointer = pointer
        """JSON pointer of the value."""
        self.tool_message = tool_message
        """The text that the model gets as the result of the tool."""

    def __reduce__(self) -> tuple[Callable[..., DrayageError], tuple[Any, ...], dict[str, Any]]:
        make = partial(
            type(self), parameter=self.parameter, pointer=self.pointer, tool_message=self.tool_message
        )
        return make, (self.fault,), self.__dict__

    @classmethod
    def of(cls, invalid: v1.InvalidParameter) -> InvalidParameterError:
        """Reads the message of the contracts."""
        return cls(
            Fault.of(invalid.fault),
            parameter=invalid.parameter,
            pointer=invalid.pointer,
            tool_message=invalid.tool_message,
        )


_ERRORS: dict[FaultCode, type[DrayageError]] = {
    FaultCode.INVALID_ARGUMENT: InvalidArgumentError,
    FaultCode.NOT_FOUND: NotFoundError,
    FaultCode.DENIED: DeniedError,
    FaultCode.TOO_LARGE: TooLargeError,
    FaultCode.UNSUPPORTED: UnsupportedError,
    FaultCode.RATE_LIMITED: RateLimitedError,
    FaultCode.TIMEOUT: DeadlineError,
    FaultCode.UNAVAILABLE: UnavailableError,
    FaultCode.INTERNAL: InternalError,
}


def error_for(fault: Fault) -> DrayageError:
    """The exception for a fault."""
    if fault.detail == "unauthenticated":
        return UnauthenticatedError(fault)
    return _ERRORS[fault.code](fault)


def deadline_error() -> DeadlineError:
    """The error for a deadline of the client that passed."""
    return DeadlineError(
        Fault(
            FaultCode.TIMEOUT,
            "The request was not finished in time.",
            detail="client_deadline",
            advice="Try again with more time; the same operation id continues the same operation.",
            retryable=True,
        )
    )
