"""The entries of the table of methods."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

RequestT = TypeVar("RequestT", bound=Message)
ReplyT = TypeVar("ReplyT", bound=Message)


@dataclass(frozen=True)
class Endpoint(Generic[RequestT, ReplyT]):
    """The addresses and the types of a method."""

    path: str
    """Path over gRPC, `/dray.v1.Files/Resolve`."""
    subject: str
    """Subject on the bus, `dray.file.v1.resolve`."""
    request: type[RequestT]
    """Class of the request."""
    reply: type[ReplyT]
    """Class of the reply."""

    @property
    def service(self) -> str:
        """Full name of the service, `dray.v1.Files`."""
        return self.path.split("/")[1]


@dataclass(frozen=True)
class Method(Endpoint[RequestT, ReplyT]):
    """A method of the contracts that has one reply."""


@dataclass(frozen=True)
class StreamMethod(Endpoint[RequestT, ReplyT]):
    """A method of the contracts whose reply is a stream of messages."""
