"""The operations on tickets, each written once for both clients."""

from __future__ import annotations

from dataclasses import dataclass

from drayage import methods, v1
from drayage._contents import Stored, claim_for
from drayage._effects import Operation, call
from drayage.models import IssuedTicket, Ticket
from drayage.options import message_seconds


@dataclass(frozen=True)
class UploadTicketSettings:
    """Conditions of an upload through a ticket, and its destination."""

    max_bytes: int = 0
    size: int | None = None
    media_type: str = ""
    sha256: str = ""
    name: str = ""
    to: str = ""
    message: str = ""
    lifetime: float = 0


def upload_ticket(session: str, settings: UploadTicketSettings) -> Operation[IssuedTicket]:
    """Issues a URL for the upload of one file."""
    destination = None
    if settings.to == "chat":
        destination = v1.TicketDestination(chat_message=settings.message)
    elif settings.to.startswith("sandbox:"):
        destination = v1.TicketDestination(sandbox_directory=settings.to.removeprefix("sandbox:"))
    elif settings.to:
        raise ValueError("`to` is neither `chat` nor `sandbox:DIRECTORY`")
    if len(settings.sha256) not in (0, 64):
        raise ValueError("`sha256` is not 64 hexadecimal digits")
    request = v1.IssueTicketRequest(
        session=session,
        direction=v1.TICKET_DIRECTION_UPLOAD,
        max_bytes=settings.max_bytes,
        size=settings.size,
        media_type=settings.media_type,
        sha256=bytes.fromhex(settings.sha256),
        name=settings.name,
        destination=destination,
        lifetime_s=message_seconds("lifetime", settings.lifetime),
    )
    return IssuedTicket((yield from call(methods.TICKETS_ISSUE, request)))


def download_ticket(session: str, source: str | Stored, name: str, lifetime: float) -> Operation[IssuedTicket]:
    """Issues a URL for the download of one file: a path in the session's sandbox, or a stored file."""
    request = v1.IssueTicketRequest(
        session=session,
        direction=v1.TICKET_DIRECTION_DOWNLOAD,
        name=name,
        lifetime_s=message_seconds("lifetime", lifetime),
    )
    if isinstance(source, str):
        request.sandbox_path = source
    else:
        artifact = (yield from claim_for(source)).artifact
        request.sha256 = artifact.sha256
        request.media_type = artifact.media_type
        request.name = name or artifact.name
    return IssuedTicket((yield from call(methods.TICKETS_ISSUE, request)))


def tickets(session: str, limit: int) -> Operation[list[Ticket]]:
    """Tickets of a session, newest first."""
    reply = yield from call(methods.TICKETS_LIST, v1.ListTicketsRequest(session=session, limit=limit))
    return [Ticket(ticket) for ticket in reply.tickets]


def ticket(ticket_id: str) -> Operation[Ticket]:
    """One ticket."""
    return Ticket((yield from call(methods.TICKETS_INSPECT, v1.InspectTicketRequest(ticket_id=ticket_id))))


def revoke_ticket(ticket_id: str) -> Operation[Ticket]:
    """Ends a ticket."""
    return Ticket((yield from call(methods.TICKETS_REVOKE, v1.RevokeTicketRequest(ticket_id=ticket_id))))
