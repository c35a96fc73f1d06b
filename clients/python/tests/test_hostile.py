"""The client against servers that break the protocol, and in the hands of callers who close, fork or share it wrongly."""

import asyncio
import errno
import hashlib
import os
import resource
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings
from concurrent import futures
from pathlib import Path

import grpc
from drayage import (
    AsyncDray,
    CallOptions,
    CommandEnd,
    DeniedError,
    Dray,
    InternalError,
    RetryPolicy,
    UnavailableError,
    v1,
)
from drayage._effects import DownloadEffect
from drayage._http import Transfers
from drayage._stream_copy import AsyncStreamCopy
from drayage._transfer import AsyncTransfer, Transfer
from drayage.bus import AsyncPublishedWork, AsyncPublisher, Publisher
from tests.test_unit import FakeStore, packed

OPTIONS = CallOptions(timeout=30, retry=RetryPolicy(max_attempts=3, first_delay=0.001, max_delay=0.01))
CHUNK = v1.ExecSandboxEvent(stdout=b"one").SerializeToString()
END = v1.ExecSandboxEvent(end=v1.ExecSandboxReply()).SerializeToString()


class RawEndpoint(grpc.GenericRpcHandler):
    """Answers every method with the bytes that one function returns, or yields for streams, and counts the requests."""

    def __init__(self, answer):
        self.answer = answer
        self.count = 0
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers([self])
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def service(self, details):
        def handle(request, context):
            self.count += 1
            return self.answer(self.count, context)

        if details.method.endswith("/ExecStream"):
            return grpc.unary_stream_rpc_method_handler(handle)
        return grpc.unary_unary_rpc_method_handler(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(None).wait()


def fetch_with_both(answer):
    """The errors of `fetch` with each client, and the number of requests of each."""
    results = []
    with RawEndpoint(answer) as endpoint:
        for fetch in (fetch_synchronously, fetch_with_asyncio):
            endpoint.count = 0
            try:
                result = fetch(endpoint.target)
            except Exception as error:
                result = error
            results.append((result, endpoint.count))
    return results


def fetch_synchronously(target):
    with Dray(target, tenant="a", plaintext=True, options=OPTIONS) as dray:
        return dray.fetch("http://a/")


def fetch_with_asyncio(target):
    async def run():
        async with AsyncDray(target, tenant="a", plaintext=True, options=OPTIONS) as dray:
            return await dray.fetch("http://a/")

    return asyncio.run(run())


def run_with_both(answer):
    """What a streamed program returned to each client before its end, and the number of requests of each."""
    results = []
    with RawEndpoint(answer) as endpoint:
        for run in (run_synchronously, run_with_asyncio):
            endpoint.count = 0
            events = []
            try:
                run(endpoint.target, events)
            except Exception as error:
                events.append(error)
            results.append((events, endpoint.count))
    return results


def run_synchronously(target, events):
    with Dray(target, tenant="a", plaintext=True, options=OPTIONS) as dray:
        for event in dray.sandbox("local:/x").exec_stream(["a"]):
            events.append(event)


def run_with_asyncio(target, events):
    async def run():
        async with AsyncDray(target, tenant="a", plaintext=True, options=OPTIONS) as dray:
            async for event in dray.sandbox("local:/x").exec_stream(["a"]):
                events.append(event)

    asyncio.run(run())


class Replies(unittest.TestCase):
    def test_a_stream_without_the_end_of_its_program_is_an_error(self):
        for events, count in run_with_both(lambda number, context: iter([CHUNK])):
            chunk, error = events
            self.assertEqual((chunk.data, count), (b"one", 1))
            self.assertIsInstance(error, UnavailableError)
            self.assertEqual(error.fault.detail, "incomplete_reply")

    def test_a_stream_without_messages_is_repeated(self):
        def answer(number, context):
            return iter([] if number == 1 else [CHUNK, END])

        for events, count in run_with_both(answer):
            self.assertEqual(count, 2)
            self.assertEqual(events[0].data, b"one")
            self.assertIsInstance(events[1], CommandEnd)

    def test_a_reply_that_is_not_readable_is_an_error(self):
        for error, _ in fetch_with_both(lambda number, context: b"\xff\xff\xff"):
            self.assertIsInstance(error, UnavailableError | InternalError)
        for events, _ in run_with_both(lambda number, context: iter([b"\xff\xff\xff"])):
            self.assertIsInstance(events[-1], UnavailableError | InternalError)

    def test_a_fault_that_is_not_readable_leaves_its_status(self):
        def answer(number, context):
            any_fault = packed(1, b"type.googleapis.com/dray.v1.Fault") + packed(2, b"\xff\xff\xff")
            context.set_trailing_metadata([("grpc-status-details-bin", packed(3, any_fault))])
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")

        for error, count in fetch_with_both(answer):
            self.assertIsInstance(error, DeniedError)
            self.assertEqual((error.fault.message, count), ("no", 1))

    def test_a_reply_that_is_too_large_is_not_requested_again(self):
        for error, count in fetch_with_both(lambda number, context: packed(1, b"x" * (5 << 20))):
            self.assertIsInstance(error, InternalError)
            self.assertEqual((error.fault.detail, error.fault.retryable, count), ("reply_too_large", False, 1))

    def test_a_request_that_the_server_cancels_is_repeated(self):
        def answer(number, context):
            if number == 1:
                context.abort(grpc.StatusCode.CANCELLED, "")
            return v1.FetchReply(name="a").SerializeToString()

        for result, count in fetch_with_both(answer):
            self.assertEqual((getattr(result, "name", result), count), ("a", 2))


class Stores(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def download(self, store):
        content = b"x" * 100_000
        artifact = v1.Artifact(sha256=hashlib.sha256(content).digest(), size=len(content))
        store.bodies[:] = [(content, len(content))] * OPTIONS.retry.max_attempts
        effect = DownloadEffect(store.url, artifact, self.directory / "f")
        try:
            Transfers(None).download(Transfer(time.monotonic() + 30), effect, OPTIONS.retry)
        finally:
            self.assertEqual([path.name for path in self.directory.iterdir() if path.suffix != ".pem"], [])

    def test_a_local_disk_that_is_full_is_not_taken_for_a_broken_store(self):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        with FakeStore() as store:
            # A write beyond this size fails as on a full disk.
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
            try:
                with self.assertRaises(OSError) as caught:
                    self.download(store)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            self.assertEqual(caught.exception.errno, errno.EFBIG)
            self.assertEqual(len(store.bodies), OPTIONS.retry.max_attempts - 1)

    def test_a_certificate_of_the_store_that_is_not_trusted_is_named(self):
        certificate, key = self.directory / "certificate.pem", self.directory / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=store"]
            + ["-keyout", key, "-out", certificate],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        with FakeStore() as store:
            store.server.socket = context.wrap_socket(store.server.socket, server_side=True)
            store.url = store.url.replace("http:", "https:")
            with self.assertRaises(UnavailableError) as caught:
                self.download(store)
        fault = caught.exception.fault
        self.assertEqual((fault.detail, fault.retryable), ("untrusted_certificate", False))
        self.assertIn("store_ca", fault.advice)


class Lifetimes(unittest.TestCase):
    def hanging_endpoint(self):
        """An endpoint that never replies, and an event that is set by its first request."""
        is_waiting, is_left = threading.Event(), threading.Event()

        def answer(number, context):
            context.add_callback(is_left.set)
            is_waiting.set()
            is_left.wait()
            return b""

        return RawEndpoint(answer), is_waiting

    def test_closing_a_client_ends_its_requests_and_names_the_reason(self):
        endpoint, is_waiting = self.hanging_endpoint()
        with endpoint, futures.ThreadPoolExecutor(1) as executor:
            dray = Dray(endpoint.target, tenant="a", plaintext=True, options=OPTIONS)
            fetching = executor.submit(dray.fetch, "http://a/")
            is_waiting.wait()
            dray.close()
            with self.assertRaisesRegex(RuntimeError, "the client is closed"):
                fetching.result()
            self.assertEqual(endpoint.count, 1)

    def test_closing_a_client_does_not_count_as_cancelling_its_tasks(self):
        async def run():
            dray = AsyncDray(endpoint.target, tenant="a", plaintext=True, options=OPTIONS)
            fetching = asyncio.create_task(dray.fetch("http://a/"))
            cancelled = asyncio.create_task(dray.fetch("http://b/"))
            await asyncio.to_thread(is_waiting.wait)
            cancelled.cancel()
            await dray.close()
            results = await asyncio.gather(fetching, cancelled, return_exceptions=True)
            self.assertIsInstance(results[1], asyncio.CancelledError)
            if hasattr(fetching, "cancelling"):
                self.assertRegex(repr(results[0]), "RuntimeError.*the client is closed")

        endpoint, is_waiting = self.hanging_endpoint()
        with endpoint:
            asyncio.run(run())

    def test_a_client_of_another_event_loop_is_refused(self):
        with RawEndpoint(lambda number, context: b"") as endpoint:
            dray = AsyncDray(endpoint.target, tenant="a", plaintext=True, options=OPTIONS)

            async def fetch(then_close=False):
                await dray.fetch("http://a/")
                if then_close:
                    await dray.close()

            loop = asyncio.new_event_loop()
            loop.run_until_complete(fetch())
            with self.assertRaisesRegex(RuntimeError, "make a client in each loop"):
                asyncio.run(fetch())
            loop.run_until_complete(fetch(then_close=True))
            loop.close()

    def test_a_client_from_before_a_fork_is_refused_in_the_child(self):
        with Dray("127.0.0.1:1", tenant="a", plaintext=True, options=OPTIONS) as dray:
            child = os.fork()
            if child == 0:
                try:
                    dray.fetch("http://a/")
                except RuntimeError as error:
                    os._exit(0 if "make a client in each process" in str(error) else 1)
                finally:
                    os._exit(2)
            _, status = os.waitpid(child, 0)
            self.assertEqual(status, 0)

    def test_a_publisher_from_before_a_fork_is_refused_in_the_child(self):
        class IdlePublisher:
            async def ask_outcome(self, operation_id):
                return None

            async def close(self):
                pass

        async def connect(*_, **__):
            return IdlePublisher()

        with unittest.mock.patch.object(AsyncPublisher, "connect", connect):
            publisher = Publisher("nats://127.0.0.1:1", tenant="acme")
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork with threads, which is what the test is about.
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            # Ends a child that hangs.
            signal.alarm(10)
            try:
                publisher.ask_outcome("o")
            except RuntimeError as error:
                publisher.close()
                os._exit(0 if "make a publisher in each process" in str(error) else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)
        # That of the parent still works.
        self.assertIsNone(publisher.ask_outcome("o"))
        publisher.close()

    def test_closing_a_publisher_ends_the_threads_that_wait_for_it(self):
        is_waiting = threading.Event()

        class SilentPublisher:
            async def ask_outcome(self, operation_id):
                is_waiting.set()
                await asyncio.Event().wait()

            async def close(self):
                pass

        async def connect(*_, **__):
            return SilentPublisher()

        connecting = unittest.mock.patch.object(AsyncPublisher, "connect", connect)
        with connecting, futures.ThreadPoolExecutor(1) as executor:
            publisher = Publisher("nats://127.0.0.1:1", tenant="acme")
            asking = executor.submit(publisher.ask_outcome, "o")
            is_waiting.wait()
            publisher.close()
            with self.assertRaisesRegex(RuntimeError, "the publisher is closed"):
                asking.result()

    def test_a_closed_publisher_ends_the_wait_for_an_outcome(self):
        async def wait():
            publisher = AsyncPublisher(unittest.mock.Mock(is_closed=True), "acme", OPTIONS)
            work = AsyncPublishedWork(publisher, "o", False, time.time() + 60, asyncio.Queue())
            await work.outcome()

        with self.assertRaisesRegex(RuntimeError, "the publisher is closed"):
            asyncio.run(wait())

    def test_streams_that_need_threads_can_be_stored_concurrently(self):
        async def chunks():
            for _ in range(3):
                yield await asyncio.to_thread(bytes, 10)

        async def copy():
            path = await AsyncStreamCopy(AsyncTransfer(time.monotonic() + 30)).make(chunks())
            size = path.stat().st_size
            path.unlink()
            return size

        async def run():
            # One thread of the loop for three copies, each of which waits for it.
            asyncio.get_running_loop().set_default_executor(futures.ThreadPoolExecutor(1))
            return await asyncio.gather(copy(), copy(), copy())

        self.assertEqual(asyncio.run(run()), [30, 30, 30])


if __name__ == "__main__":
    unittest.main()
