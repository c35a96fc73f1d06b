"""The publisher of a tenant on a real server with the shipped accounts.

The variable DRAYAGE_SCENARIO is JSON: servers, tenant, password, note (a reference that resolves to `Grüße`) and large (one
that resolves to more than a message holds).
"""

import asyncio
import json
import os
import unittest
import unittest.mock

from drayage import (
    CallOptions,
    DrayageError,
    InvalidParameterError,
    RetryPolicy,
    UnauthenticatedError,
    UnavailableError,
    bus,
)
from drayage.bus import AsyncPublisher, Publisher

SCENARIO = json.loads(os.environ["DRAYAGE_SCENARIO"])
LOGIN = {"tenant": SCENARIO["tenant"], "password": SCENARIO["password"], "options": CallOptions(timeout=60)}


class Publishing(unittest.TestCase):
    def test_a_tool_call_is_published_once_and_its_outcome_is_found_later(self):
        with Publisher(SCENARIO["servers"], **LOGIN) as publisher:
            work = publisher.publish_tool_call("t", {"note": SCENARIO["note"]}, operation_id="scenario-bus-1")
            self.assertEqual(work.outcome().arguments(), {"note": "Grüße"})
            again = publisher.publish_tool_call("t", {"note": SCENARIO["note"]}, operation_id="scenario-bus-1")
            self.assertEqual((work.duplicate, again.duplicate), (False, True))
            self.assertEqual(again.outcome().arguments(), {"note": "Grüße"})
            self.assertEqual(publisher.ask_outcome("scenario-bus-1").arguments(), {"note": "Grüße"})
            self.assertIsNone(publisher.ask_outcome("scenario-bus-unknown"))
            rejected = publisher.publish_tool_call("t", {"note": "file:text::files/b/none.txt"}).outcome()
            with self.assertRaises(InvalidParameterError):
                rejected.arguments()

    def test_a_result_that_is_larger_than_a_message_is_read_with_a_client_of_the_store(self):
        class FakeDray:
            """Returns the same bytes for every claim."""

            async def read_bytes(self, content):
                assert content.claim.artifact.size > 64 * 1024
                return b'{"f": "read from the store"}'

        async def outcome(dray):
            async with await AsyncPublisher.connect(SCENARIO["servers"], **LOGIN, dray=dray) as publisher:
                work = await publisher.publish_tool_call("t", {"f": SCENARIO["large"]})
                return await work.outcome()

        self.assertEqual(asyncio.run(outcome(FakeDray())).arguments(), {"f": "read from the store"})
        with self.assertRaises(DrayageError) as caught:
            asyncio.run(outcome(None)).arguments()
        self.assertEqual(caught.exception.fault.detail, "claim_not_opened")

    def test_a_server_that_is_away_leaves_the_next_one(self):
        async def connect():
            servers = ["nats://127.0.0.1:1", SCENARIO["servers"]]
            options = CallOptions(retry=RetryPolicy(max_attempts=1))
            settings = {**LOGIN, "options": options, "dont_randomize": True}
            async with await AsyncPublisher.connect(servers, **settings):
                pass

        asyncio.run(connect())

    def test_missed_outcomes_are_returned_once(self):
        async def scenario():
            async with await AsyncPublisher.connect(SCENARIO["servers"], **LOGIN) as publisher:
                works = [await publisher.publish_tool_call("t", {"n": number}) for number in range(3)]
                for work in works:
                    await work.outcome()
                missed = [outcome.operation_id async for outcome in publisher.missed_outcomes()]
                self.assertLessEqual({work.operation_id for work in works}, set(missed))
                self.assertEqual([outcome async for outcome in publisher.missed_outcomes(wait=0.5)], [])

        asyncio.run(scenario())

    def test_missed_outcomes_are_also_returned_synchronously(self):
        with Publisher(SCENARIO["servers"], **LOGIN) as publisher:
            work = publisher.publish_tool_call("t", {"n": 4})
            work.outcome()
            missed = [outcome.operation_id for outcome in publisher.missed_outcomes(wait=0.5)]
            self.assertIn(work.operation_id, missed)
            publisher.publish_tool_call("t", {"n": 5}).forget()

    def test_a_loop_over_missed_outcomes_that_is_left_leaves_no_subscription_and_no_outcome_behind(self):
        with Publisher(SCENARIO["servers"], **LOGIN) as publisher:
            subscriptions = publisher._publisher._connection._subs
            operations = []
            for number in (6, 7):
                work = publisher.publish_tool_call("t", {"n": number})
                work.outcome()
                operations.append(work.operation_id)
            known = set(subscriptions)
            outcomes = publisher.missed_outcomes()
            left = next(outcomes).operation_id
            outcomes.close()
            self.assertEqual(set(subscriptions), known)
            again = [outcome.operation_id for outcome in publisher.missed_outcomes(wait=0.5)]
            self.assertEqual(left, again[0])
            self.assertLessEqual(set(operations), {*again})
            with self.assertRaisesRegex(ValueError, "`wait`"):
                next(publisher.missed_outcomes(wait=float("inf")))
            open_loop = publisher.missed_outcomes(wait=0.5)
            next(open_loop, None)
        # A loop that outlives its publisher ends without waiting for it, and so does a second `close`.
        open_loop.close()
        publisher.close()
        with self.assertRaisesRegex(RuntimeError, "closed"):
            publisher.ask_outcome("scenario-bus-1")

    def test_a_consumer_that_does_not_exist_is_an_error_and_not_an_empty_list(self):
        async def scenario():
            async with await AsyncPublisher.connect(SCENARIO["servers"], **LOGIN) as publisher:
                # The server refuses the subject of another tenant, which has no reply either.
                publisher._tenant = "other"
                short_time = unittest.mock.patch.object(bus, "PUBLISH_SECONDS", 0.2)
                with short_time, self.assertRaises(UnavailableError) as caught:
                    async for outcome in publisher.missed_outcomes(wait=0.01):
                        self.fail(outcome)
                self.assertEqual(caught.exception.fault.detail, "no_consumer")

        asyncio.run(scenario())

    def test_a_call_without_a_possible_end_is_refused_before_it_is_published(self):
        with Publisher(SCENARIO["servers"], **LOGIN) as publisher:
            for seconds in (float("inf"), float("nan"), 1e300, -1):
                with self.assertRaisesRegex(ValueError, "`timeout`"):
                    publisher.publish_tool_call("t", {}, timeout=seconds)

    def test_a_wrong_password_and_a_server_that_is_away_are_reported_without_a_long_wait(self):
        with self.assertRaises(UnauthenticatedError):
            Publisher(SCENARIO["servers"], **{**LOGIN, "password": "wrong"})
        few = CallOptions(retry=RetryPolicy(max_attempts=3, first_delay=0.001))
        with self.assertRaises(UnavailableError) as caught:
            Publisher("nats://127.0.0.1:1", **{**LOGIN, "options": few})
        self.assertTrue(caught.exception.fault.retryable)


if __name__ == "__main__":
    unittest.main()
