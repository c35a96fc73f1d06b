"""Publishes the tool calls on standard input and reports each outcome, for tests in which services are killed.

The variable DRAYAGE_SCENARIO is JSON: servers and tenant. Each line of standard input is a tool call: JSON with `operation`, and
`arguments` as text. Each line of standard output is an outcome: `operation`, and `arguments`, `rejected` or the `sha256` of a
result that is larger than a message. After the end of the input and all outcomes, a last line contains the operations of
`missed_outcomes`.
"""

import asyncio
import json
import os
import sys

from drayage import CallOptions
from drayage.bus import AsyncPublisher

SCENARIO = json.loads(os.environ["DRAYAGE_SCENARIO"])
CALL_TIMEOUT_SECONDS = 900


def describe(outcome):
    line = {"operation": outcome.operation_id}
    if outcome.rejected is not None:
        return {**line, "rejected": outcome.tool_message}
    arguments = outcome.resolved.message.arguments
    if arguments.HasField("claim"):
        return {**line, "sha256": arguments.claim.artifact.sha256.hex()}
    return {**line, "arguments": outcome.arguments()}


async def run(publisher, call):
    work = await publisher.publish_tool_call("t", call["arguments"], operation_id=call["operation"])
    print(json.dumps(describe(await work.outcome())), flush=True)


async def main():
    options = CallOptions(timeout=CALL_TIMEOUT_SECONDS)
    async with await AsyncPublisher.connect(SCENARIO["servers"], tenant=SCENARIO["tenant"], options=options) as publisher:
        calls = []
        while line := await asyncio.to_thread(sys.stdin.readline):
            calls.append(asyncio.create_task(run(publisher, json.loads(line))))
        await asyncio.gather(*calls)
        print(json.dumps({"missed": [outcome.operation_id async for outcome in publisher.missed_outcomes()]}))


asyncio.run(main())
