"""The client against small servers that misbehave intentionally: retries, deadlines, faults, digests, trace context."""

import asyncio
import hashlib
import http.server
import inspect
import io
import os
import socket
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from concurrent import futures
from pathlib import Path

import grpc
from drayage import (
    AsyncDray,
    CallOptions,
    DeadlineError,
    DeniedError,
    Dray,
    Fault,
    FaultCode,
    IntegrityError,
    InvalidParameterError,
    NotFoundError,
    RetryPolicy,
    Tls,
    UnauthenticatedError,
    UnavailableError,
    methods,
    v1,
)
from drayage._effects import DownloadEffect, UploadEffect
from drayage import _http
from drayage._http import Transfers
from drayage._stream_copy import AsyncStreamCopy, StreamCopy
from drayage._transfer import AsyncTransfer, Transfer
from drayage.bus import AsyncPublisher

FAST_OPTIONS = CallOptions(timeout=20, retry=RetryPolicy(first_delay=0.001, max_delay=0.01))


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def packed(number, data):
    """A length-delimited field of protobuf."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def refuse(context, code, fault):
    """Ends a request as the services do: a status with the fault in its details."""
    any_fault = packed(1, b"type.googleapis.com/dray.v1.Fault") + packed(2, fault.SerializeToString())
    context.set_trailing_metadata([("grpc-status-details-bin", b"\x08\x07" + packed(3, any_fault))])
    context.abort(code, fault.message)


class FakeEndpoint(grpc.GenericRpcHandler):
    """Answers every method with one function, and keeps the received requests."""

    def __init__(self, answer, target="127.0.0.1:0"):
        self.answer = answer
        self.seen = []
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers([self])
        self.target = f"127.0.0.1:{self.server.add_insecure_port(target)}"
        self.server.start()

    def service(self, details):
        method = next(m for m in vars(methods).values() if getattr(m, "path", None) == details.method)

        def handle(request, context):
            metadata = dict(context.invocation_metadata())
            self.seen.append((details.method, metadata, request))
            return self.answer(len(self.seen), request, context)

        return grpc.unary_unary_rpc_method_handler(
            handle, method.request.FromString, method.reply.SerializeToString
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(None).wait()


class Calls(unittest.TestCase):
    def test_a_request_with_a_retryable_fault_is_repeated_with_the_same_operation_id(self):
        def answer(number, request, context):
            if number < 3:
                fault = v1.Fault(code=v1.FAULT_CODE_RATE_LIMITED, message="Busy.", retryable=True, retry_after_ms=1)
                refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, fault)
            return v1.FetchReply(name=request.url)

        with FakeEndpoint(answer) as fake, Dray(fake.target, tenant="acme", plaintext=True, options=FAST_OPTIONS) as dray:
            self.assertEqual(dray.fetch("http://a/").name, "http://a/")
            operations = {metadata["dray-operation"] for _, metadata, _ in fake.seen}
            self.assertEqual((len(fake.seen), len(operations)), (3, 1))
            self.assertEqual({metadata["dray-tenant"] for _, metadata, _ in fake.seen}, {"acme"})

    def test_a_final_fault_is_not_repeated_and_keeps_its_advice(self):
        fault = v1.Fault(
            code=v1.FAULT_CODE_DENIED, detail="ssrf_blocked", message="No.", advice="Use another.", trace_id="t"
        )

        def answer(number, request, context):
            refuse(context, grpc.StatusCode.PERMISSION_DENIED, fault)

        with FakeEndpoint(answer) as fake, Dray(fake.target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
            with self.assertRaises(DeniedError) as caught:
                dray.fetch("http://a/")
            self.assertEqual(len(fake.seen), 1)
        found = caught.exception.fault
        self.assertEqual((found.code, found.detail, found.trace_id), (FaultCode.DENIED, "ssrf_blocked", "t"))
        self.assertEqual(str(caught.exception), "No. Use another.")

    def test_an_unknown_caller_gets_a_separate_error(self):
        def answer(number, request, context):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "a proxy says no")

        with FakeEndpoint(answer) as fake, Dray(fake.target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
            with self.assertRaises(UnauthenticatedError):
                dray.fetch("http://a/")

    def test_attempts_end_at_their_maximum(self):
        def answer(number, request, context):
            context.abort(grpc.StatusCode.UNAVAILABLE, "down")

        with FakeEndpoint(answer) as fake, Dray(fake.target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
            with self.assertRaises(UnavailableError):
                dray.fetch("http://a/")
            self.assertEqual(len(fake.seen), FAST_OPTIONS.retry.max_attempts)

    def test_a_failure_that_lasts_is_raised_immediately_with_the_advice_of_the_service(self):
        fault = v1.Fault(
            code=v1.FAULT_CODE_UNAVAILABLE, message="No engine.", advice="Start it.", retryable=True, retry_after_ms=10_001
        )

        def answer(number, request, context):
            refuse(context, grpc.StatusCode.UNAVAILABLE, fault)

        # Time for all attempts with the delays that the service asks for.
        options = CallOptions(timeout=3600)
        with FakeEndpoint(answer) as fake, Dray(fake.target, tenant="a", plaintext=True, options=options) as dray:
            with self.assertRaises(UnavailableError) as caught:
                dray.fetch("http://a/")
            self.assertEqual(len(fake.seen), 1)
        self.assertEqual(str(caught.exception), "No engine. Start it.")
        self.assertEqual((caught.exception.fault.retryable, caught.exception.fault.retry_after), (True, 10.001))

    def test_only_unavailable_with_a_long_delay_counts_as_lasting(self):
        retry = RetryPolicy()
        for code, retry_after, lasts in [
            (FaultCode.UNAVAILABLE, 10.0, False),
            (FaultCode.UNAVAILABLE, 30.0, True),
            (FaultCode.RATE_LIMITED, 30.0, False),
            (FaultCode.TIMEOUT, 30.0, False),
        ]:
            fault = Fault(code, "Later.", retryable=True, retry_after=retry_after)
            self.assertEqual(retry.lasts(fault), lasts, (code, retry_after))
        self.assertFalse(RetryPolicy(max_unavailable_delay=60).lasts(Fault(FaultCode.UNAVAILABLE, "", retry_after=30)))

    def test_names_that_no_tool_has_are_refused_before_a_call_is_published(self):
        async def over_nats(*call, **settings):
            await AsyncPublisher(unittest.mock.Mock(), "acme", CallOptions()).publish_tool_call(*call, **settings)

        with FakeEndpoint(lambda *_: v1.ToolCallAccepted()) as fake, Dray(fake.target, tenant="a", plaintext=True) as dray:
            for tool, tool_call_id, reason in [
                ("", "c", "`tool` must not be empty"),
                ("a\nb", "c", "`tool` must not contain control characters"),
                ("t", "", "`tool_call_id` must not be empty"),
                ("t", "c\x85", "`tool_call_id` must not contain control characters"),
                ("t" * 1_000_000, None, "`tool` must not be longer than 512 bytes"),
                ("t", "ü" * 257, "`tool_call_id` must not be longer than 512 bytes"),
            ]:
                with self.assertRaisesRegex(ValueError, reason):
                    dray.publish_tool_call(tool, {}, tool_call_id=tool_call_id)
                with self.assertRaisesRegex(ValueError, reason):
                    asyncio.run(over_nats(tool, {}, tool_call_id=tool_call_id))
            self.assertEqual(fake.seen, [])
            dray.publish_tool_call("ü" * 256, {}, tool_call_id="c")
            self.assertEqual(fake.seen[0][2].tool_call_id, "c")

    def test_a_delay_beyond_the_deadline_is_not_waited_for(self):
        def answer(number, request, context):
            fault = v1.Fault(
                code=v1.FAULT_CODE_UNAVAILABLE, message="Later.", retryable=True, retry_after_ms=3_600_000
            )
            refuse(context, grpc.StatusCode.UNAVAILABLE, fault)

        with FakeEndpoint(answer) as fake, Dray(fake.target, tenant="a", plaintext=True) as dray:
            with self.assertRaises(UnavailableError):
                dray.fetch("http://a/")
            self.assertEqual(len(fake.seen), 1, "an hour does not fit into the deadline")

    def test_a_service_that_hangs_ends_at_the_deadline_of_the_client(self):
        release = threading.Event()

        def answer(number, request, context):
            release.wait()
            return v1.FetchReply()

        with FakeEndpoint(answer) as fake, Dray(fake.target, tenant="a", plaintext=True) as dray:
            try:
                with self.assertRaises(DeadlineError):
                    dray.with_options(timeout=0.2).fetch("http://a/")
            finally:
                release.set()

    def test_an_endpoint_that_starts_later_is_found_within_the_deadline(self):
        # Holds the port without listening, so that no other process gets it before the endpoint does.
        holder = socket.socket()
        self.addCleanup(holder.close)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{holder.getsockname()[1]}"
        waiting = threading.Event()
        policy = RetryPolicy(max_attempts=1000, first_delay=0.01, max_delay=0.05)
        results = []

        def fetch():
            with Dray(target, tenant="a", plaintext=True, options=CallOptions(timeout=60, retry=policy)) as dray:
                waiting.set()
                results.append(dray.fetch("http://a/").name)

        fetching = threading.Thread(target=fetch)
        fetching.start()
        waiting.wait()
        with FakeEndpoint(lambda *_: v1.FetchReply(name="up"), target):
            fetching.join()
        self.assertEqual(results, ["up"])

    def test_an_endpoint_without_tls_is_named_as_such_and_not_tried_again(self):
        with FakeEndpoint(lambda *_: v1.FetchReply()) as fake, Dray(fake.target, tenant="a", options=FAST_OPTIONS) as dray:
            with self.assertRaises(UnavailableError) as caught:
                dray.fetch("http://a/")
        fault = caught.exception.fault
        self.assertEqual((fault.detail, fault.retryable), ("endpoint_without_tls", False))
        self.assertIn("plaintext=True", fault.advice)

    def test_a_proxy_of_the_environment_is_not_used_for_this_machine(self):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            proxy = f"http://127.0.0.1:{closed.getsockname()[1]}"
        environment = {"grpc_proxy": proxy, "no_grpc_proxy": "", "no_proxy": ""}
        with unittest.mock.patch.dict(os.environ, environment), FakeEndpoint(lambda *_: v1.FetchReply(name="n")) as fake:
            for target in (fake.target, fake.target.replace("127.0.0.1", "localhost")):
                with Dray(target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
                    self.assertEqual(dray.fetch("http://a/").name, "n")

    def test_only_a_host_with_a_port_or_an_address_of_grpc_is_accepted(self):
        refused = ("", "http://127.0.0.1:50051", "HTTPS://a", "grpc://a:1", "a", "a:", ":1", "::1:50051")
        refused += ("a:0", "a:65536", "a:99999", "a:115587", "a:-1", "a:x", "a:1/x", "a:1?x=1", "me:pw@a:1", "a b:1", "a:1\n")
        for target in refused:
            with self.assertRaisesRegex(ValueError, "is not an address"):
                Dray(target, tenant="a", plaintext=True)
            with self.assertRaisesRegex(ValueError, "is not an address"):
                Dray("a:1", tenant="a", plaintext=True, endpoints={"dray.v1.Files": target})
        for target in ("a:1", "a_b.example.org:65535", "[::1]:50051", "unix:/run/dray.sock", "dns:///a:1"):
            Dray(target, tenant="a", plaintext=True).close()

    def test_an_address_of_a_service_that_does_not_exist_is_refused_with_those_that_do(self):
        with self.assertRaisesRegex(ValueError, r"`dray\.v1\.Sandbox`; .*dray\.v1\.Sandboxes"):
            Dray("a:1", tenant="a", plaintext=True, endpoints={"dray.v1.Sandbox": "b:1"})

    def test_options_travel_as_metadata(self):
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        with FakeEndpoint(lambda *_: v1.FetchReply()) as fake:
            with Dray(fake.target, token="secret", plaintext=True, options=FAST_OPTIONS) as dray:
                dray.with_options(operation_id="o-1", session="s", app="p", traceparent=trace).fetch("http://a/")
        metadata = fake.seen[0][1]
        for name, value in {
            "authorization": "Bearer secret",
            "dray-operation": "o-1",
            "dray-session": "s",
            "dray-app": "p",
            "traceparent": trace,
        }.items():
            self.assertEqual(metadata[name], value)
        self.assertNotIn("dray-tenant", metadata)

    def test_requests_go_to_the_endpoint_of_their_service(self):
        with FakeEndpoint(lambda *_: v1.FetchReply()) as first, FakeEndpoint(lambda *_: v1.SandboxEntry()) as second:
            endpoints = {"dray.v1.Sandboxes": second.target}
            with Dray(first.target, tenant="a", plaintext=True, endpoints=endpoints) as dray:
                dray.fetch("http://a/")
                dray.sandbox("docker:web").stat("/x")
        self.assertEqual([method for method, _, _ in first.seen], ["/dray.v1.Egress/Fetch"])
        self.assertEqual([method for method, _, _ in second.seen], ["/dray.v1.Sandboxes/Stat"])

    def test_an_invalid_argument_is_an_error_with_the_text_for_the_model(self):
        invalid = v1.InvalidParameter(parameter="f", pointer="/f", tool_message="Parameter f is invalid")
        with FakeEndpoint(lambda *_: v1.ResolveReply(invalid=invalid)) as fake:
            with Dray(fake.target, tenant="a", plaintext=True) as dray:
                with self.assertRaises(InvalidParameterError) as caught:
                    dray.resolve({"f": "file:text::x"})
        self.assertEqual(caught.exception.tool_message, "Parameter f is invalid")

    def remove_with_both(self, *faults):
        """Removes a path with each client. The service answers the attempts with these faults, and then with success."""

        def answer(number, request, context):
            if (number - 1) % attempts < len(faults):
                code, fault = faults[(number - 1) % attempts]
                refuse(context, code, fault)
            return v1.RemoveSandboxPathReply()

        async def remove(target):
            async with AsyncDray(target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
                await dray.sandbox("docker:web").remove("/work/f")

        attempts = len(faults)
        with FakeEndpoint(answer) as fake:
            try:
                with Dray(fake.target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
                    dray.sandbox("docker:web").remove("/work/f")
            finally:
                self.assertEqual(len(fake.seen), attempts)
                asyncio.run(remove(fake.target))

    def test_a_path_that_a_repetition_does_not_find_was_removed_by_an_earlier_attempt(self):
        lost = (grpc.StatusCode.UNAVAILABLE, v1.Fault(code=v1.FAULT_CODE_UNAVAILABLE, message="Lost.", retryable=True))

        def missing(detail):
            fault = v1.Fault(code=v1.FAULT_CODE_NOT_FOUND, message="Missing.", detail=detail)
            return grpc.StatusCode.NOT_FOUND, fault

        self.remove_with_both(lost, missing("not_found"))
        for faults in [(missing("not_found"),), (lost, missing("sandbox_gone"))]:
            with self.assertRaises(NotFoundError):
                self.remove_with_both(*faults)

    def test_an_accepted_delivery_is_waited_for_until_a_worker_takes_it(self):
        missing = v1.Fault(code=v1.FAULT_CODE_NOT_FOUND, message="There is no such delivery.", detail="not_found")

        def answer(number, request, context):
            if isinstance(request, v1.SendFileRequested):
                return v1.DeliveryAccepted(delivery_id="d")
            if len([seen for seen in fake.seen if isinstance(seen[2], v1.DeliveryOutcomeRequest)]) % 2:
                refuse(context, grpc.StatusCode.NOT_FOUND, missing)
            return v1.DeliveryReport(delivery_id="d", finished=True, success=True)

        async def send(target):
            async with AsyncDray(target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
                delivery = await dray.send("s", paths=["f"])
                return await delivery.outcome()

        with FakeEndpoint(answer) as fake:
            with Dray(fake.target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
                self.assertTrue(dray.send("s", paths=["f"]).outcome().success)
                self.assertTrue(asyncio.run(send(fake.target)).success)
                # A delivery that was not sent by this client may not exist.
                with self.assertRaises(NotFoundError):
                    dray.delivery("d").outcome()

    def test_the_asyncio_client_repeats_and_reports_in_the_same_way(self):
        def answer(number, request, context):
            if number == 1:
                context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
            if request.url == "refuse":
                fault = v1.Fault(code=v1.FAULT_CODE_DENIED, message="No.")
                refuse(context, grpc.StatusCode.PERMISSION_DENIED, fault)
            return v1.FetchReply(name="found")

        async def scenario(target):
            async with AsyncDray(target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
                self.assertEqual((await dray.fetch("http://a/")).name, "found")
                with self.assertRaises(DeniedError):
                    await dray.fetch("refuse")

        with FakeEndpoint(answer) as fake:
            asyncio.run(scenario(fake.target))
        self.assertEqual(len(fake.seen), 3)


class Options(unittest.TestCase):
    def test_a_token_does_not_travel_without_tls_to_another_machine(self):
        for target in ["10.0.0.1:50051", "files.example.org:50051", "localhost.example.org:1", "127.example.org:1"]:
            with self.assertRaises(ValueError):
                Dray(target, token="secret", plaintext=True)
        with self.assertRaises(ValueError):
            Dray("127.0.0.1:1", token="t", plaintext=True, endpoints={"dray.v1.Files": "10.0.0.1:1"})
        Dray("[::1]:50051", token="secret", plaintext=True).close()
        self.assertNotIn("secret", repr(Dray("h:1", token="secret")._channels.connection))

    def test_values_that_cannot_be_metadata_are_refused_by_name_without_their_content(self):
        # An empty id would be a new operation for each repetition; tokens from files end with a line break.
        for options in [{"operation_id": ""}, {"operation_id": "a\n"}, {"session": "ü"}, {"app": " a"}]:
            with self.assertRaisesRegex(ValueError, f"`{next(iter(options))}`"):
                CallOptions(**options)
        with self.assertRaisesRegex(ValueError, "`token`") as caught:
            Dray("127.0.0.1:1", token="secret\n")
        self.assertNotIn("secret", str(caught.exception))
        with self.assertRaisesRegex(ValueError, "`tenant`"):
            Dray("127.0.0.1:1", tenant="größe")
        with self.assertRaisesRegex(ValueError, "`timeout`"):
            CallOptions(timeout=float("nan"))

    def test_a_very_long_and_an_infinite_time_are_not_one_that_has_passed(self):
        with FakeEndpoint(lambda *_: v1.FetchReply(name="found")) as fake:
            with Dray(fake.target, tenant="a", plaintext=True) as dray:
                for seconds in [1e12, float("inf")]:
                    self.assertEqual(dray.with_options(timeout=seconds).fetch("http://a/").name, "found")

    def test_a_wrong_argument_of_every_public_method_is_named(self):
        with Dray("127.0.0.1:1", tenant="a", plaintext=True) as dray:
            box = dray.sandbox("docker:web")
            delivery = dray.delivery("d")
            for owner in [dray, box]:
                for name, method in inspect.getmembers(owner, inspect.ismethod):
                    parameters = inspect.signature(method).parameters.values()
                    required = [item.name for item in parameters if item.default is item.empty and item.kind <= 1]
                    if name.startswith("_") or not required:
                        continue
                    with self.assertRaisesRegex(TypeError, f"^`{required[0]}` of `.*[.]{name}` must be .*, not complex"):
                        result = method(*[1j for _ in required])
                        # A generator checks its arguments at its call, so this is not reached.
                        list(result)
            for call, message in [
                (lambda: dray.sandbox(5), "`address` of `Dray.sandbox` must be str, not int"),
                (lambda: box.get(None), "`path` of `Sandbox.get` must be str or bytes, not None"),
                (lambda: dray.send("s", paths="a"), "`paths` of `Dray.send` must be a list of str or bytes, not str"),
                (
                    lambda: dray.send("s", paths=["a", 1]),
                    "`paths` of `Dray.send` must be a list of str or bytes, not a list that contains int",
                ),
                (
                    lambda: box.exec(["a"], environment={"N": 5}),
                    "`environment` of `Sandbox.exec` must be a mapping from str to str or bytes or None, "
                    "not a mapping that contains int",
                ),
                (
                    lambda: list(box.exec_stream(["a"], environment={b"N": "5"})),
                    "`environment` of `Sandbox.exec_stream` must be a mapping from str to str or bytes or None, "
                    "not a mapping that contains bytes",
                ),
                (lambda: dray.receipts(limit="5"), "`limit` of `Dray.receipts` must be int, not str"),
                (lambda: delivery.outcome(timeout="5"), "`timeout` of `Delivery.outcome` must be float or None, not str"),
                (lambda: dray.with_options(timeout="5"), "`timeout` must be a number of seconds, not str"),
                (lambda: dray.with_options(session=5), "`session` must be str, not int"),
                (lambda: Dray(5), "`target` of `Dray` must be str, not int"),
            ]:
                with self.assertRaises(TypeError) as raised:
                    call()
                self.assertEqual(str(raised.exception), message)

    def test_a_value_that_no_message_can_hold_is_named(self):
        with Dray("127.0.0.1:1", tenant="a", plaintext=True) as dray:
            box = dray.sandbox("docker:web")
            for call, message in [
                (lambda: dray.receipts(limit=-1), "`limit` of `Dray.receipts` must not be negative"),
                (lambda: box.ls(limit=2**32), "`limit` of `Sandbox.ls` must be at most 4294967295"),
                (lambda: box.ls(depth=2**40), "`depth` of `Sandbox.ls` must be at most 4294967295"),
                (lambda: box.put(b"", name="a", mode=2**32), "`mode` of `Sandbox.put` must be at most 4294967295"),
                (lambda: box.get("a", max_bytes=2**64), "`max_bytes` of `Sandbox.get` must be at most 18446744073709551615"),
                (lambda: dray.fetch("http://a/", size_limit_bytes=-1), "`size_limit_bytes` of `Dray.fetch` must not be"),
                (lambda: dray.upload_ticket("s", size=-1), "`size` of `Dray.upload_ticket` must not be negative"),
                (lambda: dray.resolve({"a": b"x"}), "`arguments` cannot be written as JSON: .*bytes"),
                (lambda: dray.resolve({"a": float("nan")}), "`arguments` cannot be written as JSON: "),
                (lambda: dray.resolve({"a": "\ud800"}), "`arguments` cannot be written as JSON: "),
                (lambda: dray.publish_tool_call("t", {"a": {1, 2}}), "`arguments` cannot be written as JSON: .*set"),
            ]:
                with self.assertRaisesRegex((TypeError, ValueError), f"^{message}"):
                    call()

    def test_a_closed_client_refuses_requests(self):
        with FakeEndpoint(lambda *_: v1.FetchReply()) as fake:
            dray = Dray(fake.target, tenant="a", plaintext=True)
            dray.close()
            with self.assertRaisesRegex(RuntimeError, "closed"):
                dray.fetch("http://a/")
            self.assertEqual(fake.seen, [])

    def test_arguments_that_would_lose_a_condition_are_refused(self):
        with Dray("127.0.0.1:1", tenant="a", plaintext=True) as dray:
            for sha256 in ["abcd", "zz" * 32]:
                with self.assertRaises(ValueError):
                    dray.upload_ticket("s", sha256=sha256)
            for chat in ["telegram", "telegram:", ":42"]:
                with self.assertRaisesRegex(ValueError, "telegram:42"):
                    dray.bind_session("s", chat=chat)
            for source, kind in [(None, "None"), (3, "int"), (object(), "object")]:
                with self.assertRaisesRegex(TypeError, f"`source` of `Dray.store` must be bytes, .*, not {kind}$"):
                    dray.store(source)
                with self.assertRaisesRegex(TypeError, f"`source` of `Dray.read` must be str, .*, not {kind}$"):
                    dray.read(source)
            box = dray.sandbox("docker:web")
            with self.assertRaisesRegex(TypeError, "`stdin` of `Sandbox.exec` must be .* not str; give the bytes of a text"):
                box.exec(["cat"], stdin="text")
            for seconds in [float("inf"), float("nan"), 1e300, -1]:
                with self.assertRaisesRegex(ValueError, "`timeout`"):
                    box.exec(["cat"], timeout=seconds)
                with self.assertRaisesRegex(ValueError, "`lifetime`"):
                    dray.upload_ticket("s", lifetime=seconds)
                with self.assertRaisesRegex(ValueError, "`lifetime`"):
                    dray.download_ticket("s", "f", lifetime=seconds)

    def test_a_client_certificate_needs_its_key(self):
        with self.assertRaises(ValueError):
            Tls(certificate=b"c")

    def test_delays_grow_with_jitter_and_respect_the_service(self):
        policy = RetryPolicy(first_delay=0.1, max_delay=1)
        self.assertEqual([policy.delay(n, 0, lambda: 1) for n in (1, 2, 3, 9)], [0.1, 0.2, 0.4, 1])
        self.assertEqual(policy.delay(3, 0, lambda: 0), 0)
        self.assertEqual(policy.delay(1, 7.5, lambda: 1), 7.5)
        # A publisher repeats for as long as its call has time.
        self.assertEqual(policy.delay(10_000, 0, lambda: 1), 1)


class FakeStore:
    """A store that answers with scripted bodies, one for each request, and keeps the uploaded bodies."""

    def __init__(self, bodies=(), statuses=()):
        self.bodies, self.statuses, self.received = list(bodies), list(statuses), []
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body, announced = store.bodies.pop(0)
                self.send_response(200)
                self.send_header("content-length", str(announced))
                self.end_headers()
                self.wfile.write(body)

            def do_PUT(self):
                store.received.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(store.statuses.pop(0))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/o?sig=1"
        threading.Thread(target=self.server.serve_forever).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


CONTENT = b"0123456789" * 1000
ARTIFACT = v1.Artifact(sha256=hashlib.sha256(CONTENT).digest(), size=len(CONTENT))


class Bodies(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.transfers = Transfers(None)

    def transfer(self):
        return Transfer(time.monotonic() + 30)

    def test_a_broken_download_is_repeated_and_only_the_complete_file_appears(self):
        whole = (CONTENT, len(CONTENT))
        with FakeStore([(CONTENT[:500], len(CONTENT)), whole]) as store:
            target = self.directory / "f"
            self.transfers.download(self.transfer(), DownloadEffect(store.url, ARTIFACT, target), FAST_OPTIONS.retry)
        self.assertEqual(target.read_bytes(), CONTENT)
        self.assertEqual([path.name for path in self.directory.iterdir()], ["f"])

    def test_other_bytes_than_announced_are_an_error_and_leave_no_file(self):
        other = CONTENT[:-1] + b"x"
        for body in [other, CONTENT + b"x"]:
            with FakeStore([(body, len(body))]) as store:
                effect = DownloadEffect(store.url, ARTIFACT, self.directory / "f")
                with self.assertRaises(IntegrityError):
                    self.transfers.download(self.transfer(), effect, FAST_OPTIONS.retry)
            self.assertEqual(list(self.directory.iterdir()), [])

    def test_a_file_whose_name_is_as_long_as_possible_is_downloaded(self):
        target = self.directory / ("n" * 255)
        with FakeStore([(CONTENT, len(CONTENT))]) as store:
            self.transfers.download(self.transfer(), DownloadEffect(store.url, ARTIFACT, target), FAST_OPTIONS.retry)
        self.assertEqual(target.read_bytes(), CONTENT)

    def test_content_of_a_message_replaces_a_file_instead_of_changing_it(self):
        target, link = self.directory / "f", self.directory / "link"
        target.write_bytes(b"before")
        os.link(target, link)
        with Dray("127.0.0.1:1", tenant="a", plaintext=True) as dray:
            dray.download(v1.Content(inline=b"after"), target)
        self.assertEqual((target.read_bytes(), link.read_bytes()), (b"after", b"before"))
        self.assertEqual({path.name for path in self.directory.iterdir()}, {"f", "link"})

    def test_partial_files_are_closed_before_they_are_renamed_or_removed(self):
        # Windows does neither with an open file.
        def is_open(path):
            descriptors = Path("/proc/self/fd").iterdir()
            return any(os.path.realpath(entry) == os.path.realpath(path) for entry in descriptors)

        def check(function):
            def checked(path, *rest):
                checks.append(is_open(path))
                return function(path, *rest)

            return unittest.mock.patch.object(os, function.__name__, checked)

        def broken():
            yield b"half"
            raise OSError("the sender left")

        checks = []
        other = CONTENT[:-1] + b"x"
        with check(os.replace), check(os.unlink), FakeStore([(b, len(b)) for b in (CONTENT, other)]) as store:
            effect = DownloadEffect(store.url, ARTIFACT, self.directory / "f")
            self.transfers.download(self.transfer(), effect, FAST_OPTIONS.retry)
            with self.assertRaises(IntegrityError):
                self.transfers.download(self.transfer(), effect, FAST_OPTIONS.retry)
            with self.assertRaises(OSError):
                StreamCopy(self.transfer()).make(broken())
        self.assertEqual(checks, [False, False, False])

    def test_an_upload_is_repeated_from_its_beginning(self):
        source = self.directory / "f"
        source.write_bytes(CONTENT)
        with FakeStore(statuses=[503, 200]) as store:
            effect = UploadEffect(store.url, {}, source, len(CONTENT))
            self.transfers.upload(self.transfer(), effect, FAST_OPTIONS.retry)
        self.assertEqual(store.received, [CONTENT, CONTENT])

    def test_a_refused_upload_is_not_repeated(self):
        with FakeStore(statuses=[403]) as store:
            with self.assertRaises(UnavailableError):
                effect = UploadEffect(store.url, {}, CONTENT, len(CONTENT))
                self.transfers.upload(self.transfer(), effect, FAST_OPTIONS.retry)
        self.assertEqual(len(store.received), 1)

    def test_a_stream_returns_chunks_and_raises_at_its_end_when_the_digest_differs(self):
        other = CONTENT[:-1] + b"x"
        whole, half = (CONTENT, len(CONTENT)), (CONTENT[:500], len(CONTENT))
        with FakeStore([whole, (other, len(other)), half]) as store:

            def read_all():
                stream = self.transfers.open_download(self.transfer(), store.url, ARTIFACT, FAST_OPTIONS.retry)
                try:
                    return b"".join(iter(lambda: stream.read(1000), b""))
                finally:
                    stream.close()

            self.assertEqual(read_all(), CONTENT)
            with self.assertRaises(IntegrityError):
                read_all()
            # Bytes that were read cannot be taken back, so a broken stream is not repeated.
            with self.assertRaises(UnavailableError) as caught:
                read_all()
            self.assertEqual(caught.exception.fault.detail, "transfer_failed")

    def test_streams_are_copied_completely_and_the_copy_of_a_broken_one_is_removed(self):
        def broken():
            yield b"half"
            raise OSError("the sender left")

        with unittest.mock.patch.object(tempfile, "tempdir", str(self.directory)):
            for source in [io.BytesIO(CONTENT), iter([CONTENT[:9], bytearray(CONTENT[9:])])]:
                path = StreamCopy(self.transfer()).make(source)
                self.assertEqual(path.read_bytes(), CONTENT)
                path.unlink()
            with self.assertRaisesRegex(OSError, "the sender left"):
                StreamCopy(self.transfer()).make(broken())
            with self.assertRaisesRegex(TypeError, "str"):
                StreamCopy(self.transfer()).make(io.StringIO("text"))
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_an_asynchronous_iterable_is_spooled_in_its_event_loop(self):
        async def chunks(end):
            yield CONTENT[:9]
            await asyncio.sleep(0)
            yield CONTENT[9:]
            await end()

        async def done():
            pass

        async def fail():
            raise OSError("the sender left")

        async def spool(end, seconds=30):
            transfer = AsyncTransfer(time.monotonic() + seconds)
            return await AsyncStreamCopy(transfer).make(chunks(end))

        async def spool_and_cancel():
            begun = asyncio.Event()

            async def hang():
                begun.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(spool(hang))
            await begun.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        with unittest.mock.patch.object(tempfile, "tempdir", str(self.directory)):
            path = asyncio.run(spool(done))
            self.assertEqual(path.read_bytes(), CONTENT)
            path.unlink()
            with self.assertRaisesRegex(OSError, "the sender left"):
                asyncio.run(spool(fail))
            with self.assertRaises(DeadlineError):
                asyncio.run(spool(asyncio.Event().wait, seconds=0.2))
            asyncio.run(spool_and_cancel())
            with self.assertRaisesRegex(TypeError, "AsyncDray"):
                StreamCopy(self.transfer()).make(chunks(done))
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_an_iterable_that_blocks_does_not_hold_the_call_beyond_its_deadline(self):
        released = threading.Event()
        ended = []

        def blocked():
            yield CONTENT
            released.wait(20)
            yield b"late"

        async def spool():
            with self.assertRaises(DeadlineError):
                await AsyncStreamCopy(AsyncTransfer(time.monotonic() + 0.2)).make(blocked())
            ended.append(not released.is_set())
            released.set()

        with unittest.mock.patch.object(tempfile, "tempdir", str(self.directory)):
            # The end of the loop waits for its threads.
            asyncio.run(spool())
        self.assertEqual((ended, list(self.directory.iterdir())), ([True], []))


class SilentStore:
    """A store that sends the start of a body and then stays silent, until its client closes the connection."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/o?sig=1"
        self.is_left = threading.Event()
        threading.Thread(target=self.serve).start()

    def serve(self):
        connection, _ = self.listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n0123" % len(CONTENT))
            while connection.recv(65536):
                pass
        self.is_left.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


class Cancellation(unittest.TestCase):
    """Each test would wait for an hour if cancelling did not reach the thread that transfers."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        for patch in [
            unittest.mock.patch.object(_http, "MAX_SILENCE_SECONDS", 3600.0),
            unittest.mock.patch.object(tempfile, "tempdir", str(self.directory)),
        ]:
            patch.start()
            self.addCleanup(patch.stop)

    def run_with(self, url, scenario):
        def answer(number, request, context):
            return v1.PresignedUrl(url=url)

        async def run(target):
            options = CallOptions(timeout=3600, retry=FAST_OPTIONS.retry)
            async with AsyncDray(target, tenant="a", plaintext=True, options=options) as dray:
                await scenario(dray)

        with FakeEndpoint(answer) as fake:
            asyncio.run(run(fake.target))

    def test_leaving_a_silent_download_ends_its_connection_immediately(self):
        async def scenario(dray):
            chunks = dray.open(v1.Claim(artifact=ARTIFACT))
            self.assertEqual(await anext(chunks), b"0123")
            reading = asyncio.ensure_future(anext(chunks))
            await self.find_silent_read()
            reading.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await reading
            await chunks.aclose()

        with SilentStore() as store:
            self.run_with(store.url, scenario)
            store.is_left.wait()

    async def find_silent_read(self):
        """Waits until a thread reads from the store, which sends nothing."""
        while not any("read" in self.functions(frame) for frame in sys._current_frames().values()):
            await asyncio.sleep(0)

    def functions(self, frame):
        names = set()
        while frame is not None:
            if frame.f_code.co_filename == _http.__file__:
                names.add(frame.f_code.co_name)
            frame = frame.f_back
        return names

    def test_a_cancelled_download_leaves_no_file_and_no_connection(self):
        async def scenario(dray):
            target = self.directory / "f"
            downloading = asyncio.ensure_future(dray.download(v1.Claim(artifact=ARTIFACT), target))
            await self.find_silent_read()
            downloading.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await downloading

        with SilentStore() as store:
            self.run_with(store.url, scenario)
            store.is_left.wait()
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_a_cancelled_store_of_a_stream_removes_its_copy(self):
        for waits_in_the_source in (True, False):
            is_reading, may_continue = threading.Event(), threading.Event()

            def chunks():
                yield b"half"
                is_reading.set()
                may_continue.wait()

            async def scenario(dray):
                storing = asyncio.ensure_future(dray.store(chunks()))
                while not is_reading.is_set():
                    await asyncio.sleep(0)
                if not waits_in_the_source:
                    may_continue.set()
                    # The copy is complete before its task runs again.
                    while not any(path.stat().st_size for path in self.directory.iterdir()):
                        time.sleep(0)
                storing.cancel()
                may_continue.set()
                with self.assertRaises(asyncio.CancelledError):
                    await storing

            self.run_with("http://127.0.0.1:1/", scenario)
            self.assertEqual(list(self.directory.iterdir()), [])


class Ids(unittest.TestCase):
    def test_auxiliary_requests_have_ids_that_are_derived_from_the_operation(self):
        def answer(number, request, context):
            if isinstance(request, v1.PrepareUploadRequest):
                return v1.PrepareUploadReply(upload_id="u", url=v1.PresignedUrl(url=store.url))
            if isinstance(request, v1.FinishUploadRequest):
                return v1.FinishUploadReply(claim=v1.Claim(store="s"))
            return v1.ToolCallAccepted(operation_id="o")

        arguments = {"a": "x" * 100_000}
        with FakeStore(statuses=[200, 200]) as store, FakeEndpoint(answer) as fake:
            with Dray(fake.target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
                for _ in range(2):
                    dray.with_options(operation_id="o").publish_tool_call("t", arguments)
        ids = [metadata["dray-operation"] for _, metadata, _ in fake.seen]
        self.assertEqual(ids, ["o-1", "o-2", "o"] * 2)
        self.assertEqual(fake.seen[2][2].arguments.claim.store, "s")


if __name__ == "__main__":
    unittest.main()
