"""Publishes a tool call to Drayage and waits for its resolved arguments.

Needs a NATS server with the Drayage topology and a running file-resolver:

    pip install -r examples/python/requirements.txt
    python examples/python/resolve_tool_call.py --arguments '{"note": "file:text::files/bucket/note.txt"}'

On the shipped accounts (deploy/nats/accounts.conf) log in as the publisher of a tenant:

    NATS_PASSWORD=... python examples/python/resolve_tool_call.py --user publisher-acme --tenant acme --arguments '{}'

Prints the resolved arguments and exits 0. For a rejected call, prints the text for the model and exits 1, as without a
connection. Without an outcome before the deadline, exits 2; `--operation` with the printed id requests the outcome
later. `--missed` prints the outcomes that were published while this publisher was not connected.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import time
import uuid
# The base class of nats.errors.TimeoutError. A pull that ends just at its timeout raises the base class itself.
from asyncio import TimeoutError

import nats
import nats.errors
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.js.errors import NoStreamResponseError

from dray.v1 import common_pb2, toolcall_pb2

WORK_STREAM = "DRAY_WORK"
EVENT_STREAM = "DRAY_EVENT"
# Larger arguments go to the object store first and travel as a claim.
MAX_INLINE_BYTES = 64 * 1024
OUTCOMES = {
    "dray.v1.ToolCallResolved": toolcall_pb2.ToolCallResolved,
    "dray.v1.ToolCallRejected": toolcall_pb2.ToolCallRejected,
    # Work that no service could read.
    "dray.v1.WorkDeadLettered": common_pb2.WorkDeadLettered,
}
CONNECT_SECONDS = 5.0
# What the services accept as the id of an operation.
OPERATION_ID = re.compile(r"[!-~]{1,128}")
# How long to wait for the event before asking for the outcome.
ASK_INTERVAL_SECONDS = 5.0
# The end of an expired operation is reported shortly after its deadline.
REPORT_GRACE_SECONDS = 5.0


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nats", default="nats://127.0.0.1:4222", help="URL of the server")
    parser.add_argument("--credentials", help="file with NATS credentials")
    parser.add_argument("--user", help="NATS user; its password is in the variable NATS_PASSWORD")
    parser.add_argument("--tenant", default="default", help="tenant of the call")
    parser.add_argument("--tool", default="example", help="name of the tool")
    parser.add_argument("--arguments", help="the arguments, a JSON object")
    parser.add_argument("--operation", help="id of an operation that was published before")
    parser.add_argument("--missed", action="store_true", help="print the outcomes since the last run, one per line")
    parser.add_argument("--nested", action="store_true", help="resolve nested strings as well")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds until the call expires")
    options = parser.parse_args(argv)
    if not re.fullmatch(r"[a-z0-9_-]{1,64}", options.tenant):
        parser.error("a tenant of this example is 1 to 64 of a-z, 0-9, _ and -")
    if options.arguments is None and options.operation is None and not options.missed:
        parser.error("--arguments, --operation or --missed is needed")
    if options.operation is not None and not OPERATION_ID.fullmatch(options.operation):
        parser.error("an operation id is 1 to 128 printable ASCII characters without blanks")
    if options.user and "NATS_PASSWORD" not in os.environ:
        parser.error("--user needs the password in the variable NATS_PASSWORD")
    if len((options.arguments or "").encode()) > MAX_INLINE_BYTES:
        parser.error("arguments above 64 KiB have to be stored first")
    return options


async def connect(options):
    """Connects. The server lets a user receive replies only on the inbox with its own name."""
    login = {"inbox_prefix": f"_INBOX_{options.user or 'publisher-' + options.tenant}"}
    if options.user:
        login |= {"user": options.user, "password": os.environ["NATS_PASSWORD"]}
    reasons = []

    async def note_reason(error):
        # Without it, the library prints a traceback for every attempt.
        reasons.append(str(error) or type(error).__name__)

    connecting = nats.connect(
        options.nats, user_credentials=options.credentials, name="dray-example", error_cb=note_reason, **login
    )
    try:
        return await asyncio.wait_for(connecting, min(options.timeout, CONNECT_SECONDS))
    except (OSError, nats.errors.Error, TimeoutError) as error:
        reason = reasons[-1] if reasons else error
        sys.exit(f"cannot connect to {options.nats}: {reason}. Check the address and the login, and that the server runs.")


async def publish(js, options, operation, deadline):
    """Publishes the work. A repetition has the same message id, so that the stream stores it once."""
    call = toolcall_pb2.ToolCallRequested(tool_call_id=f"call-{operation}", tool=options.tool)
    call.arguments.inline = options.arguments.encode()
    call.options.nested = options.nested
    headers = {
        # Cannot be guessed, and is the same for every repetition of this call.
        "Nats-Msg-Id": f"{operation}:toolcall.resolve:0",
        "Dray-Schema": "dray.v1.ToolCallRequested/1",
        "Dray-Operation": operation,
        "Dray-Deadline": str(int(deadline * 1000)),
        "Dray-Tenant": options.tenant,
        "Content-Type": "application/x-protobuf",
    }
    subject = f"dray.work.toolcall.v1.resolve.{options.tenant}"
    while True:
        try:
            # Without `stream=`: workers refuse messages with headers that control the server.
            stored = await js.publish(subject, call.SerializeToString(), timeout=5, headers=headers)
            if stored.stream != WORK_STREAM:
                raise RuntimeError(f"{stored.stream} took the call instead of {WORK_STREAM}")
            return
        except (TimeoutError, NoStreamResponseError, ConnectionClosedError) as error:
            # It is unknown whether the message was stored, or the stream has no leader while the servers restart: send it
            # again under the same id.
            if time.time() + 1 > deadline:
                raise TimeoutError from error
            await asyncio.sleep(0.5)


async def request_outcome(connection, options, operation):
    """Requests the outcome from the ledger, which keeps it for three days. None before the end.

    The last token of the subject is the tenant: the server lets a publisher ask for its own tenant only.
    """
    headers = {
        "Dray-Schema": "dray.v1.ToolCallOutcomeRequest/1",
        # The id of this request, not of the operation.
        "Dray-Operation": str(uuid.uuid4()),
        "Dray-Deadline": str(int((time.time() + 5) * 1000)),
        "Dray-Tenant": options.tenant,
        "Content-Type": "application/x-protobuf",
    }
    request = toolcall_pb2.ToolCallOutcomeRequest(operation_id=operation)
    subject = f"dray.file.v1.outcome.{options.tenant}"
    try:
        reply = await connection.request(subject, request.SerializeToString(), timeout=5, headers=headers)
    except (TimeoutError, NoRespondersError):
        # No file-resolver runs. The work waits for one, too.
        return None
    if (reply.headers or {}).get("Dray-Outcome") != "ok":
        raise RuntimeError(common_pb2.Fault.FromString(reply.data).message)
    found = toolcall_pb2.ToolCallOutcome.FromString(reply.data)
    kind = found.WhichOneof("outcome")
    return getattr(found, kind) if kind else None


def event_of(message):
    """The operation and its outcome. None for an event that ends no operation."""
    headers = message.headers or {}
    if "Nats-Stream" in headers:
        # No service published it: it is the reply to a read of a stream that named the subject of events for its reply.
        return None
    kind = OUTCOMES.get(headers.get("Dray-Schema", "").split("/")[0])
    if kind is None:
        return None
    event = kind.FromString(message.data)
    if kind is common_pb2.WorkDeadLettered:
        # The id in the header is not that of the work if it could not be read.
        return (event.operation_id, event) if event.operation_id else None
    return headers.get("Dray-Operation"), event


async def wait_for_outcome(connection, events, options, operation, deadline):
    """Waits for the event that ends the operation. Also requests the outcome at intervals, because the event may have
    been sent before the subscription."""
    while True:
        known = await request_outcome(connection, options, operation)
        if known is not None:
            return known
        next_request = time.time() + ASK_INTERVAL_SECONDS
        while (remaining := min(next_request, deadline + REPORT_GRACE_SECONDS) - time.time()) > 0:
            try:
                found = event_of(await events.next_msg(timeout=remaining))
            except TimeoutError:
                break
            if found is not None and found[0] == operation:
                return found[1]
        if time.time() >= deadline + REPORT_GRACE_SECONDS:
            raise TimeoutError


async def print_missed_outcomes(js, options):
    """Prints the outcomes since the last run, from the durable consumer of the tenant.

    `dray topology apply --publisher TENANT` creates the consumer.
    """
    consumer = await js.pull_subscribe_bind(f"publisher-{options.tenant}", stream=EVENT_STREAM)
    while True:
        try:
            messages = await consumer.fetch(64, timeout=2)
        except TimeoutError:
            return
        for message in messages:
            found = event_of(message)
            if found is not None:
                operation, event = found
                is_resolved = isinstance(event, toolcall_pb2.ToolCallResolved)
                # Of work that no service could read, the tool is not known.
                line = {"operation": operation, "tool": getattr(event, "tool", ""), "resolved": is_resolved}
                print(json.dumps(line), flush=True)
            # The message is acknowledged after it is printed: without an acknowledgement, the outcome is delivered
            # again.
            await message.ack()


def print_outcome(event):
    """Prints the outcome, and returns the exit code."""
    if isinstance(event, common_pb2.WorkDeadLettered):
        print(event.fault.message, file=sys.stderr)
        return 1
    if isinstance(event, toolcall_pb2.ToolCallRejected):
        print(event.invalid.tool_message or event.fault.message, file=sys.stderr)
        if event.fault.advice:
            print(event.fault.advice, file=sys.stderr)
        return 1
    for file in event.resolved.files:
        print(f"{file.pointer}: {file.form} of {file.reference}, {file.size} bytes", file=sys.stderr)
    arguments = event.resolved.arguments
    if arguments.WhichOneof("body") == "inline":
        print(arguments.inline.decode())
    else:
        # The arguments are too large for a message. A client with credentials of the store can read them.
        artifact = arguments.claim.artifact
        claim = {"store": arguments.claim.store, "sha256": artifact.sha256.hex(), "size": artifact.size}
        print(json.dumps({"claim": claim}))
    return 0


async def main(argv):
    options = parse(argv)
    operation = options.operation or str(uuid.uuid4())
    deadline = time.time() + options.timeout
    connection = await connect(options)
    try:
        js = connection.jetstream()
        if options.missed:
            await print_missed_outcomes(js, options)
            return 0
        # The subscription begins before the call is published, so that no event is missed. A publisher may subscribe to
        # the live events of its tenant, but may not create consumers on the stream.
        events = await connection.subscribe(f"dray.event.toolcall.v1.*.{options.tenant}")
        await connection.flush()
        if options.arguments is not None:
            await publish(js, options, operation, deadline)
        return print_outcome(await wait_for_outcome(connection, events, options, operation, deadline))
    except TimeoutError:
        print(f"no outcome of operation {operation} before the deadline", file=sys.stderr)
        return 2
    finally:
        await connection.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
