"""What the table of methods says about each of them."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

RequestT = TypeVar("RequestT", bound=Message)
ReplyT = TypeVar("ReplyT", bound=Message)


@dataclass(frozen=True)
class Method(Generic[RequestT, ReplyT]):
    """A method of the contracts: its addresses and its types."""

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
