"""Results of operations. Each result keeps the protobuf message as `message`, for fields without an attribute here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drayage import v1
from drayage.faults import DrayageError, Fault, FaultCode, InvalidParameterError, error_for

_SANDBOX_ENTRY_KINDS = {
    v1.SANDBOX_ENTRY_KIND_FILE: "file",
    v1.SANDBOX_ENTRY_KIND_DIRECTORY: "dir",
    v1.SANDBOX_ENTRY_KIND_SYMLINK: "symlink",
    v1.SANDBOX_ENTRY_KIND_FIFO: "fifo",
    v1.SANDBOX_ENTRY_KIND_SOCKET: "socket",
    v1.SANDBOX_ENTRY_KIND_CHAR_DEVICE: "chardev",
    v1.SANDBOX_ENTRY_KIND_BLOCK_DEVICE: "blockdev",
}
_FILE_STATES = {
    v1.FILE_STATE_QUEUED: "queued",
    v1.FILE_STATE_SENDING: "sending",
    v1.FILE_STATE_DELIVERED: "delivered",
    v1.FILE_STATE_DELIVERED_AS_LINK: "delivered_as_link",
    v1.FILE_STATE_COPIED: "copied",
    v1.FILE_STATE_REJECTED: "rejected",
    v1.FILE_STATE_FAILED: "failed",
}
_TICKET_STATES = {
    v1.TICKET_STATE_OPEN: "open",
    v1.TICKET_STATE_ACTIVE: "active",
    v1.TICKET_STATE_STORED: "stored",
    v1.TICKET_STATE_COMPLETE: "complete",
    v1.TICKET_STATE_FAILED: "failed",
    v1.TICKET_STATE_REVOKED: "revoked",
    v1.TICKET_STATE_EXPIRED: "expired",
}


@dataclass(frozen=True)
class ResolvedArguments:
    """The arguments of a tool call with content in place of references."""

    message: v1.ResolvedArguments
    content: bytes | None
    """The arguments as JSON text; `None` when they are larger than a message and were not fetched."""

    @property
    def json(self) -> str:
        """The arguments as JSON text, with every number as it was sent."""
        if self.content is None:
            raise DrayageError(
                Fault(
                    FaultCode.TOO_LARGE,
                    "The resolved arguments are larger than a message.",
                    detail="claim_not_opened",
                    advice="Read the claim in `message.arguments.claim` from the store, or ask over gRPC.",
                )
            )
        return self.content.decode()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as values of Python."""
        arguments: dict[str, Any] = json.loads(self.json)
        return arguments

    @property
    def files(self) -> Sequence[v1.ResolvedFile]:
        """The files whose content replaced a reference, in order of appearance."""
        return self.message.files


@dataclass(frozen=True)
class ToolCallOutcome:
    """The outcome of a published tool call: arguments, or a text for the model."""

    operation_id: str
    tool_call_id: str
    tool: str
    resolved: ResolvedArguments | None
    rejected: v1.ToolCallRejected | None

    @property
    def tool_message(self) -> str:
        """The text that the model gets as the result of a rejected call; empty for a resolved one."""
        if self.rejected is None:
            return ""
        return self.rejected.invalid.tool_message or self.rejected.fault.message

    def arguments(self) -> dict[str, Any]:
        """The resolved arguments; raises the error of a rejected call."""
        if self.resolved is not None:
            return self.resolved.arguments
        rejected = self.rejected or v1.ToolCallRejected()
        if rejected.HasField("invalid"):
            raise InvalidParameterError.of(rejected.invalid)
        raise error_for(Fault.of(rejected.fault))


@dataclass(frozen=True)
class FetchedFile:
    """A file from the web. Its content is untrusted, and its labels are what the server declared."""

    message: v1.FetchReply

    @property
    def size(self) -> int:
        """Size of the stored content in bytes."""
        return self.message.size

    @property
    def sha256(self) -> str:
        """SHA-256 of the stored bytes, hexadecimal."""
        return self.message.sha256.hex()

    @property
    def media_type(self) -> str:
        """Media type as the server declared it."""
        return self.message.media_type

    @property
    def name(self) -> str:
        """File name as the server gave it, made safe; empty when it gave none."""
        return self.message.name

    @property
    def content(self) -> v1.Content:
        """The bytes, or a claim on them: for `read_bytes` and `download`."""
        return self.message.content


@dataclass(frozen=True)
class Document:
    """A document as Markdown, framed as untrusted data."""

    message: v1.ReadAttachmentReply
    text: str
    """The text that a model sees; never empty. Problems with the document are described here too."""

    @property
    def outcome(self) -> str:
        """`inline`, `summary`, `note`, `hint`, `refuse` or `cancelled`."""
        return self.message.outcome

    @property
    def error_code(self) -> str:
        """A code of docs/reading.md; empty without an error."""
        return self.message.error_code

    @property
    def media_type(self) -> str:
        """Media type by the bytes; empty when refused before it was known."""
        return self.message.mime

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return self.message.truncated


@dataclass(frozen=True)
class SandboxEntry:
    """An entry of a sandbox: its path, kind and size."""

    message: v1.SandboxEntry

    @property
    def path(self) -> str:
        """The path; bytes that are not UTF-8 become surrogate escapes, as in `os.fsdecode`."""
        return self.message.path.decode("utf-8", "surrogateescape")

    @property
    def kind(self) -> str:
        """`file`, `dir`, `symlink`, `fifo`, `socket`, `chardev`, `blockdev` or `other`."""
        return _SANDBOX_ENTRY_KINDS.get(self.message.kind_code, "other")

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.message.size


@dataclass(frozen=True)
class SandboxListing:
    """The entries of a directory of a sandbox, in the order of their paths."""

    entries: list[SandboxEntry]
    truncated: bool
    """Whether a limit ended the list early."""


@dataclass(frozen=True)
class SandboxFile:
    """A file that was copied out of a sandbox into the store, with proof."""

    message: v1.SandboxFile

    @property
    def claim(self) -> v1.Claim:
        """The claim on the stored file: for `download`, `read_bytes`, `read` and `send`."""
        return self.message.claim

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.message.claim.artifact.size

    @property
    def sha256(self) -> str:
        """SHA-256, hexadecimal."""
        return self.message.claim.artifact.sha256.hex()

    @property
    def receipt(self) -> v1.TransferReceipt:
        """Proof of the transfer."""
        return self.message.receipt


@dataclass(frozen=True)
class CommandEnd:
    """The end of a program in a sandbox."""

    message: v1.ExecSandboxReply

    @property
    def state(self) -> str:
        """`exited`, `signaled` or `timed_out`."""
        name = v1.SandboxCommandState.Name(self.message.state)
        return name.removeprefix("SANDBOX_COMMAND_STATE_").lower()

    @property
    def exit_code(self) -> int:
        """Exit code; with a signal 128 + its number, and 137 at a time limit."""
        return self.message.exit_code

    @property
    def signal(self) -> int:
        """Number of the signal that ended it; 0 without one."""
        return self.message.signal

    @property
    def truncated(self) -> bool:
        """Whether output was dropped because it exceeded the limit."""
        return self.message.stdout.truncated or self.message.stderr.truncated

    @property
    def seconds(self) -> float:
        """Time from its start to its end."""
        return self.message.milliseconds / 1000


@dataclass(frozen=True)
class CommandResult(CommandEnd):
    """A program that has ended in a sandbox, with its outputs."""

    stdout: bytes
    """Standard output, as far as it was kept."""
    stderr: bytes
    """Standard error, as far as it was kept."""


@dataclass(frozen=True)
class CommandChunk:
    """Bytes that a program has written."""

    output: Literal["stdout", "stderr"]
    data: bytes
    """The bytes may end within a character: decode with `codecs.getincrementaldecoder`."""


@dataclass(frozen=True)
class PlacedFile:
    """A file that was written into a sandbox."""

    message: v1.PlacedFile

    @property
    def path(self) -> str:
        """Final path."""
        return self.message.path.decode("utf-8", "surrogateescape")

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.message.size

    @property
    def sha256(self) -> str:
        """SHA-256, hexadecimal."""
        return self.message.sha256.hex()

    @property
    def receipt(self) -> v1.TransferReceipt:
        """Proof of the transfer."""
        return self.message.receipt


@dataclass(frozen=True)
class DeliveredFile:
    """The outcome of one file of a delivery."""

    message: v1.DeliveredFile

    @property
    def name(self) -> str:
        """Visible name."""
        return self.message.name

    @property
    def state(self) -> str:
        """`queued`, `sending`, `delivered`, `delivered_as_link`, `copied`, `rejected`, `failed` or `unknown`. An unknown
        file may have arrived; it is never a success."""
        return _FILE_STATES.get(self.message.state_code, "unknown")

    @property
    def error(self) -> str:
        """Sentence on the failure; empty without one."""
        return self.message.error_message


@dataclass(frozen=True)
class DeliveryReport:
    """The outcome of a delivery, as far as the platform confirmed it."""

    message: v1.DeliveryReport

    @property
    def delivery_id(self) -> str:
        """The id, which is the operation id of `send`."""
        return self.message.delivery_id

    @property
    def finished(self) -> bool:
        """Whether the delivery has ended."""
        return self.message.finished

    @property
    def success(self) -> bool:
        """Whether every file was shown."""
        return self.message.success

    @property
    def files(self) -> list[DeliveredFile]:
        """The files, in the order of the request."""
        return [DeliveredFile(file) for file in self.message.files]


@dataclass(frozen=True)
class Ticket:
    """The state of a ticket, without its URL."""

    message: v1.Ticket

    @property
    def ticket_id(self) -> str:
        """The id, which identifies the ticket but grants no access."""
        return self.message.ticket_id

    @property
    def direction(self) -> str:
        """`upload` or `download`."""
        return "download" if self.message.direction == v1.TICKET_DIRECTION_DOWNLOAD else "upload"

    @property
    def state(self) -> str:
        """`open`, `active`, `stored`, `complete`, `failed`, `revoked`, `expired`, or `unknown` for a state that only a
        newer service has."""
        return _TICKET_STATES.get(self.message.state, "unknown")

    @property
    def max_bytes(self) -> int:
        """Most bytes of an upload; the size of a download."""
        return self.message.max_bytes

    @property
    def sha256(self) -> str:
        """SHA-256 of the stored content, hexadecimal; empty while there is none."""
        return self.message.sha256.hex()


@dataclass(frozen=True)
class IssuedTicket:
    """A new ticket. Its URL is a secret for its user, and cannot be requested a second time."""

    message: v1.IssuedTicket

    @property
    def ticket(self) -> Ticket:
        """The state of the ticket."""
        return Ticket(self.message.ticket)

    @property
    def url(self) -> str:
        """The URL, for one file, once."""
        return self.message.url

    @property
    def curl(self) -> str:
        """A command line for `curl` that uses the ticket."""
        return self.message.curl
