"""Publishes a tool call to Drayage and waits for its resolved arguments.

Needs a NATS server with the Drayage topology and a running file-resolver:

    pip install -r examples/python/requirements.txt
    python examples/python/resolve_tool_call.py --arguments '{"note": "file:text::files/bucket/note.txt"}'

Prints the resolved arguments and exits 0. A rejected call prints what the model should be told and exits 1; no answer
before the deadline exits 2.
"""

import argparse
import asyncio
import json
import re
import sys
import time
import uuid

import nats
from nats.errors import ConnectionClosedError, NoRespondersError, TimeoutError
from nats.js.api import ConsumerConfig, DeliverPolicy

from dray.v1 import toolcall_pb2

WORK_STREAM = "DRAY_WORK"
EVENT_STREAM = "DRAY_EVENT"
# Larger arguments go to the object store first and travel as a claim.
INLINE_LIMIT = 64 * 1024
OUTCOMES = {
    "dray.v1.ToolCallResolved": toolcall_pb2.ToolCallResolved,
    "dray.v1.ToolCallRejected": toolcall_pb2.ToolCallRejected,
}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nats", default="nats://127.0.0.1:4222", help="URL of the server")
    parser.add_argument("--credentials", help="file with NATS credentials")
    parser.add_argument("--tenant", default="default", help="whose call it is")
    parser.add_argument("--tool", default="example", help="name of the tool")
    parser.add_argument("--arguments", required=True, help="the arguments, a JSON object")
    parser.add_argument("--nested", action="store_true", help="resolve nested strings as well")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds until the call is given up")
    options = parser.parse_args(argv)
    if not re.fullmatch(r"[a-z0-9_-]{1,64}", options.tenant):
        parser.error("a tenant of this example is 1 to 64 of a-z, 0-9, _ and -")
    if len(options.arguments.encode()) > INLINE_LIMIT:
        parser.error("arguments above 64 KiB have to be stored first")
    return options


async def publish(js, options, operation, deadline):
    """Publishes the work. A repeat carries the same message id, so the stream takes it once."""
    call = toolcall_pb2.ToolCallRequested(tool_call_id=f"call-{operation}", tool=options.tool)
    call.arguments.inline = options.arguments.encode()
    call.options.nested = options.nested
    headers = {
        # Unguessable, and the same for every repeat of this call.
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
            # Not with `stream=`: headers that steer the server are refused by whoever reads the message.
            stored = await js.publish(subject, call.SerializeToString(), timeout=5, headers=headers)
            if stored.stream != WORK_STREAM:
                raise RuntimeError(f"{stored.stream} took the call instead of {WORK_STREAM}")
            return
        except (TimeoutError, NoRespondersError, ConnectionClosedError):
            # Nobody knows whether it was stored: send it again.
            if time.time() + 1 > deadline:
                raise
            await asyncio.sleep(0.5)


async def outcome(events, operation, deadline):
    """The event that ends the operation."""
    while True:
        message = await events.next_msg(timeout=max(deadline - time.time(), 0.001))
        headers = message.headers or {}
        kind = OUTCOMES.get(headers.get("Dray-Schema", "").split("/")[0])
        if kind is not None and headers.get("Dray-Operation") == operation:
            return kind.FromString(message.data)


def show(event):
    """Prints the outcome; the exit code."""
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
        # Too large for a message: whoever has the store's credentials reads the object.
        artifact = arguments.claim.artifact
        claim = {"store": arguments.claim.store, "sha256": artifact.sha256.hex(), "size": artifact.size}
        print(json.dumps({"claim": claim}))
    return 0


async def main(argv):
    options = parse(argv)
    operation = str(uuid.uuid4())
    deadline = time.time() + options.timeout
    connection = await nats.connect(options.nats, user_credentials=options.credentials, name="dray-example")
    try:
        js = connection.jetstream()
        # Listen first, so that the answer cannot be missed.
        events = await js.subscribe(
            f"dray.event.toolcall.v1.*.{options.tenant}",
            stream=EVENT_STREAM,
            ordered_consumer=True,
            config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW),
        )
        await publish(js, options, operation, deadline)
        return show(await outcome(events, operation, deadline))
    except TimeoutError:
        print("no answer before the deadline", file=sys.stderr)
        return 2
    finally:
        await connection.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
