"""Tests examples/python/resolve_tool_call.py without a server."""

import argparse
import asyncio
import contextlib
import io
import time
import types
import unittest
import unittest.mock

import nats.errors
import resolve_tool_call as example
from dray.v1 import common_pb2, toolcall_pb2
from nats.js.errors import NoStreamResponseError

OPTIONS = argparse.Namespace(tenant="acme", tool="t", arguments="{}", nested=False)


class FakeStream:
    """A stream that fails with these errors before it stores a message."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.ids = []

    async def publish(self, subject, payload, timeout, headers):
        self.ids.append(headers["Nats-Msg-Id"])
        if self.errors:
            raise self.errors.pop(0)
        return types.SimpleNamespace(stream="DRAY_WORK")


class Publication(unittest.TestCase):
    def publish(self, stream, seconds):
        async def return_immediately(_):
            pass

        with unittest.mock.patch.object(asyncio, "sleep", return_immediately):
            asyncio.run(example.publish(stream, OPTIONS, "o", time.time() + seconds))

    def test_a_publication_is_repeated_under_its_id_until_the_stream_has_a_leader(self):
        stream = FakeStream(NoStreamResponseError(), nats.errors.TimeoutError(), nats.errors.ConnectionClosedError())
        self.publish(stream, 60)
        self.assertEqual(stream.ids, ["o:toolcall.resolve:0"] * 4)

    def test_a_stream_without_a_leader_until_the_deadline_is_a_missing_outcome(self):
        with self.assertRaises(TimeoutError):
            self.publish(FakeStream(NoStreamResponseError()), 0)


class Events(unittest.TestCase):
    def message(self, **further):
        headers = {"Dray-Operation": "o", "Dray-Schema": "dray.v1.ToolCallResolved/1", **further}
        return types.SimpleNamespace(headers=headers, data=toolcall_pb2.ToolCallResolved(tool="t").SerializeToString())

    def test_a_stored_message_that_was_sent_as_an_event_is_ignored(self):
        self.assertEqual(example.event_of(self.message())[0], "o")
        self.assertIsNone(example.event_of(self.message(**{"Nats-Stream": "KV_dray_tickets"})))

    def test_work_that_no_service_could_read_has_an_outcome(self):
        def message(operation_id):
            fault = common_pb2.Fault(message="The message cannot be read.")
            event = common_pb2.WorkDeadLettered(operation_id=operation_id, fault=fault)
            headers = {"Dray-Operation": "other", "Dray-Schema": "dray.v1.WorkDeadLettered/1"}
            return types.SimpleNamespace(headers=headers, data=event.SerializeToString())

        operation, event = example.event_of(message("o"))
        self.assertEqual(operation, "o")
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(example.print_outcome(event), 1)
        self.assertEqual(errors.getvalue(), "The message cannot be read.\n")
        self.assertIsNone(example.event_of(message("")))


class Arguments(unittest.TestCase):
    def test_an_operation_id_that_the_services_refuse_is_refused(self):
        for operation in ("", "order 17", "ü", "x" * 129):
            with contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit):
                example.parse(["--arguments", "{}", "--operation", operation])
            self.assertIn("an operation id is 1 to 128 printable ASCII characters", errors.getvalue())
        self.assertEqual(example.parse(["--operation", "x" * 128]).operation, "x" * 128)


if __name__ == "__main__":
    unittest.main()
