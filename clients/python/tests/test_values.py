"""What callers hold: errors that cross processes, ids, times and the types of arguments."""

import asyncio
import copy
import pickle
import unittest
import unittest.mock
from concurrent import futures
from multiprocessing import get_context

import drayage
from drayage import CallOptions, Dray, DrayageError, Fault, FaultCode, InvalidParameterError, v1
from drayage._effects import CallEffect, OperationIds
from drayage.bus import AsyncPublisher
from tests.test_unit import FakeEndpoint

FAULT = Fault(FaultCode.DENIED, "No.", "ssrf_blocked", "Use another.", True, 1.5, "t")


def every_error():
    """An error of each public class."""
    for name in drayage.__all__:
        kind = getattr(drayage, name)
        if isinstance(kind, type) and issubclass(kind, DrayageError) and kind is not InvalidParameterError:
            yield kind(FAULT)
    yield InvalidParameterError(FAULT, parameter="f", pointer="/f", tool_message="Parameter f is invalid")


def fail():
    raise InvalidParameterError(FAULT, parameter="f", pointer="/f", tool_message="wrong")


class Errors(unittest.TestCase):
    def test_every_error_is_the_same_after_pickling_and_copying(self):
        errors = list(every_error())
        self.assertGreater(len(errors), 10)
        for error in errors:
            error.note = "kept"
            for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
                self.assertIs(type(same), type(error))
                self.assertEqual((str(same), same.args, vars(same)), (str(error), error.args, vars(error)))

    def test_an_error_of_a_worker_reaches_the_process_that_waits_for_it(self):
        with futures.ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
            with self.assertRaises(InvalidParameterError) as caught:
                executor.submit(fail).result()
        self.assertEqual((caught.exception.fault, caught.exception.tool_message), (FAULT, "wrong"))


class Ids(unittest.TestCase):
    REFUSED = ("", " ", "order 17", "bestellung-ü", "x" * 129, "a\nb", "a\n")

    def test_an_operation_id_that_the_services_refuse_is_refused_before_anything_is_sent(self):
        async def over_nats(operation_id):
            connection = unittest.mock.Mock()
            publisher = AsyncPublisher(connection, "acme", CallOptions())
            for attempt in (
                publisher.publish_tool_call("t", {}, operation_id=operation_id),
                publisher.ask_outcome(operation_id),
            ):
                with self.assertRaisesRegex(ValueError, "`operation_id` must be 1 to 128 printable ASCII"):
                    await attempt
            self.assertEqual(connection.mock_calls, [unittest.mock.call.jetstream()])

        with Dray("127.0.0.1:1", tenant="a", plaintext=True) as dray:
            for operation_id in self.REFUSED:
                asyncio.run(over_nats(operation_id))
                for find, name in (
                    (dray.tool_call, "operation_id"),
                    (dray.delivery, "delivery_id"),
                    (lambda value: dray.with_options(operation_id=value), "operation_id"),
                    (lambda value: dray.with_options(session=value), "session"),
                    (lambda value: dray.with_options(app=value), "app"),
                    (lambda value: Dray("127.0.0.1:1", tenant=value), "tenant"),
                ):
                    with self.assertRaisesRegex(ValueError, f"`{name}` must be 1 to 128 printable ASCII"):
                        find(operation_id)
            self.assertEqual(dray.tool_call("x" * 128).operation_id, "x" * 128)

    def test_ids_that_are_derived_from_the_longest_operation_id_are_not_too_long(self):
        def derived(operation_id):
            ids = OperationIds(operation_id)
            requests = [CallEffect(None, None, auxiliary=True)] * 11 + [CallEffect(None, None)]
            return [ids.next_for(request) for request in requests]

        longest, other = "x" * 128, "x" * 127 + "y"
        self.assertEqual(derived(longest)[-1], longest)
        self.assertEqual(derived(longest), derived(longest), "a repetition has the same ids")
        self.assertEqual(len({*derived(longest), *derived(other)}), 24)
        self.assertLessEqual(max(map(len, derived(longest))), 128)
        self.assertEqual(derived("o")[0], "o-1")


class Times(unittest.TestCase):
    def test_a_positive_time_is_never_sent_as_none(self):
        def reply(number, request, context):
            return v1.IssuedTicket() if isinstance(request, v1.IssueTicketRequest) else v1.ExecSandboxReply()

        with FakeEndpoint(reply) as fake, Dray(fake.target, tenant="a", plaintext=True) as dray:
            box = dray.sandbox("docker:web")
            for timeout, timeout_ms in ((0, 0), (0.0001, 1), (0.3, 300), (0.07, 70), (1, 1000)):
                box.exec(["true"], timeout=timeout)
                self.assertEqual(fake.seen[-1][2].timeout_ms, timeout_ms)
            for lifetime, lifetime_s in ((0, 0), (0.001, 1), (59.9, 60), (60, 60)):
                dray.upload_ticket("s", lifetime=lifetime)
                self.assertEqual(fake.seen[-1][2].lifetime_s, lifetime_s)
                dray.download_ticket("s", "f", lifetime=lifetime)
                self.assertEqual(fake.seen[-1][2].lifetime_s, lifetime_s)


if __name__ == "__main__":
    unittest.main()
