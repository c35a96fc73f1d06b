"""What callers hold: errors that cross processes, ids, times and the types of arguments."""

import copy
import pickle
import unittest
from concurrent import futures
from multiprocessing import get_context

import drayage
from drayage import Dray, DrayageError, Fault, FaultCode, InvalidParameterError, v1
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
