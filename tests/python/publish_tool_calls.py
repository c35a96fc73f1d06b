"""Publishes tool calls that name pages, as the publisher of a tenant does: publish_tool_calls.py COUNT PAGES.

The pages are PAGES/0, PAGES/1 and so on. Prints a line of JSON for each final event of a call, even a repeated one, and
ends when each call has one. The password is in the variable NATS_PASSWORD. The functions that use the bus are those of
examples/python/resolve_tool_call.py.
"""

import asyncio
import json
import pathlib
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/python"))

import resolve_tool_call as example  # noqa: E402
from dray.v1 import toolcall_pb2  # noqa: E402

TIMEOUT_SECONDS = 120


async def main(count, pages):
    arguments = ["--user", "publisher-acme", "--tenant", "acme", "--arguments", "{}"]
    options = example.parse(arguments)
    deadline = time.time() + TIMEOUT_SECONDS
    connection = await example.connect(options)
    js = connection.jetstream()
    events = await connection.subscribe(f"dray.event.toolcall.v1.*.{options.tenant}")
    await connection.flush()
    published = set()
    for number in range(count):
        operation = str(uuid.uuid4())
        options.arguments = json.dumps({"page": f"file:text::{pages}/{number}"})
        await example.publish(js, options, operation, deadline)
        published.add(operation)
    missing = set(published)
    while missing:
        found = example.event_of(await events.next_msg(timeout=max(deadline - time.time(), 1)))
        if found is not None and found[0] in published:
            operation, event = found
            missing.discard(operation)
            is_resolved = isinstance(event, toolcall_pb2.ToolCallResolved)
            print(json.dumps({"operation": operation, "resolved": is_resolved}), flush=True)
    await connection.close()


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
