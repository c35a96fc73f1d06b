"""The events that end the calls of a publisher, over a fake connection."""

import asyncio
import gc
import time
import unittest

from drayage import CallOptions, DeniedError, Fault, FaultCode, InvalidArgumentError, UnavailableError, v1
from drayage.bus import AsyncPublishedWork, AsyncPublisher, EndingEvents
from drayage.models import ToolCallOutcome


class FakeConnection:
    """A connection that records its subscriptions and delivers messages to the last one."""

    def __init__(self, failing_flushes=0):
        self.subjects = []
        self.flushes = 0
        self._failing_flushes = failing_flushes
        self._callback = None

    async def subscribe(self, subject, cb):
        self.subjects.append(subject)
        self._callback = cb
        return object()

    def jetstream(self):
        return None

    async def flush(self):
        self.flushes += 1
        if self.flushes <= self._failing_flushes:
            raise ConnectionError

    async def deliver(self, operation_id, kind="ToolCallResolved", event=None, **further):
        class Message:
            headers = {"Dray-Operation": operation_id, "Dray-Schema": f"dray.v1.{kind}/1", **further}
            data = b"" if event is None else event.SerializeToString()

        await self._callback(Message())


class Outcomes(unittest.TestCase):
    def wait_for(self, *answers):
        """Waits for the outcome of a call whose event never arrives. Requests for the outcome have these answers in turn."""

        class FakePublisher:
            def __init__(self):
                self._events = EndingEvents(FakeConnection(), "acme")

            async def ask_outcome(self, operation_id):
                answer = remaining.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer

            async def _event_of(self, message):
                raise AssertionError("no event was sent")

        async def outcome():
            class SilentMessages(asyncio.Queue):
                async def get(self):
                    raise asyncio.TimeoutError

            return await AsyncPublishedWork(FakePublisher(), "o", False, time.time() + 60, SilentMessages()).outcome()

        remaining = list(answers)
        return asyncio.run(outcome())

    def test_a_retryable_failure_does_not_end_the_wait_for_an_outcome(self):
        stopping = UnavailableError(Fault(FaultCode.UNAVAILABLE, "Stopping.", retryable=True))
        ended = ToolCallOutcome("o", "call-o", "t", None, v1.ToolCallRejected())
        self.assertIs(self.wait_for(stopping, None, ended), ended)

    def test_calls_share_a_subscription_and_each_gets_only_its_own_events(self):
        async def scenario():
            connection = FakeConnection()
            events = EndingEvents(connection, "acme")
            first, second, again = await asyncio.gather(*map(events.open, ("a", "b", "a")))
            self.assertEqual(connection.subjects, ["dray.event.toolcall.v1.*.acme"])
            self.assertEqual(connection.flushes, 1)
            await connection.deliver("a", "ToolCallProgress")
            # A stored message that was sent as the reply to a read.
            await connection.deliver("b", **{"Nats-Stream": "KV_dray_tickets"})
            await connection.deliver("a")
            await connection.deliver("unknown")
            self.assertEqual([queue.qsize() for queue in (first, second, again)], [1, 0, 1])
            third, fourth = await events.open("c"), await events.open("c")
            events.close("c", third)
            events.close("c", third)
            await connection.deliver("c")
            self.assertEqual([queue.qsize() for queue in (third, fourth)], [0, 1])
            for operation_id, queue in (("a", first), ("a", again), ("b", second), ("c", fourth)):
                events.close(operation_id, queue)
            self.assertEqual(events._waiting, {})

        asyncio.run(scenario())

    def test_a_call_whose_outcome_is_not_awaited_leaves_nothing_behind(self):
        async def scenario():
            connection = FakeConnection()
            events = EndingEvents(connection, "acme")
            ended = await events.open("ended")
            await connection.deliver("ended")
            self.assertEqual((ended.qsize(), list(events._waiting)), (1, []))
            # The event of this call never arrives, and its owner drops it.
            dropped, kept = await events.open("dropped"), await events.open("kept")
            del dropped
            gc.collect()
            await connection.deliver("other")
            self.assertEqual(list(events._waiting), ["kept"])
            await connection.deliver("kept")
            self.assertEqual(kept.qsize(), 1)

        asyncio.run(scenario())

    def test_an_unconfirmed_subscription_is_confirmed_by_the_next_call(self):
        async def scenario():
            connection = FakeConnection(failing_flushes=1)
            events = EndingEvents(connection, "acme")
            with self.assertRaises(ConnectionError):
                await events.open("a")
            self.assertEqual(events._waiting, {})
            await events.open("a")
            self.assertEqual((len(connection.subjects), connection.flushes), (1, 2))

        asyncio.run(scenario())

    def test_a_refusal_ends_the_wait_for_an_outcome(self):
        with self.assertRaises(DeniedError):
            self.wait_for(DeniedError(Fault(FaultCode.DENIED, "No.")))

    def test_a_call_that_no_worker_could_read_ends_with_the_fault_of_its_dead_letter(self):
        async def scenario():
            connection = FakeConnection()
            publisher = AsyncPublisher(connection, "acme", CallOptions())
            messages = await publisher._events.open("o")
            fault = v1.Fault(code=v1.FAULT_CODE_INVALID_ARGUMENT, message="The message cannot be read.")
            # The header has a new id if the service cannot read that of the work.
            await connection.deliver("o", "WorkDeadLettered", v1.WorkDeadLettered(fault=fault))
            self.assertTrue(messages.empty())
            await connection.deliver("new", "WorkDeadLettered", v1.WorkDeadLettered(operation_id="o", fault=fault))
            outcome = await publisher._event_of(messages.get_nowait())
            self.assertEqual((outcome.operation_id, outcome.tool_message), ("o", "The message cannot be read."))
            self.assertEqual(outcome.rejected.state, v1.TERMINAL_STATE_DEAD_LETTERED)
            with self.assertRaises(InvalidArgumentError):
                outcome.arguments()

        asyncio.run(scenario())


if __name__ == "__main__":
    unittest.main()
