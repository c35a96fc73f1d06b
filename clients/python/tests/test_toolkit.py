"""The tool `send_file` of the adapters, when calls end without an outcome."""

import asyncio
import hashlib
import threading
import unittest

import grpc
from drayage import AsyncDray, CallOptions, v1
from drayage.adapters import _deliveries
from drayage.adapters._tools import Toolkit
from tests.test_unit import FAST_OPTIONS, FakeEndpoint, refuse

EARLIER = "An earlier call, whose outcome was not known,"


def digest(content):
    return hashlib.sha256(content).digest()


class FakeChat:
    """A service whose deliveries contain the files of the sandbox at the time of their first request."""

    def __init__(self, **files):
        self.files = {name.encode(): content for name, content in files.items()}
        self.deliveries = {}
        self.requests = []
        self.waiting = threading.Event()
        self.may_continue = threading.Event()
        self.may_continue.set()
        self.hanging = None
        self.failing = None
        self.endpoint = FakeEndpoint(self.reply)

    def hang_at(self, kind):
        """Requests of this kind get no reply until `may_continue` is set."""
        self.hanging = kind
        self.waiting.clear()
        self.may_continue.clear()

    def reply(self, number, request, context):
        kind = type(request)
        operation = dict(context.invocation_metadata())["dray-operation"]
        if self.failing is not None and self.failing[0] is kind:
            refuse(context, *self.failing[1:])
        reply = self.replies(kind, request, operation)
        if kind is self.hanging:
            self.waiting.set()
            self.may_continue.wait()
        return reply

    def replies(self, kind, request, operation):
        if kind is v1.SendFileRequested:
            self.requests.append(operation)
            is_duplicate = operation in self.deliveries
            if not is_duplicate:
                self.deliveries[operation] = {path: self.files[path] for path in request.paths}
            return v1.DeliveryAccepted(delivery_id=operation, duplicate=is_duplicate)
        if kind is v1.DeliveryOutcomeRequest:
            files = [
                v1.DeliveredFile(path=path, name=path.decode(), sha256=digest(content), state_code=v1.FILE_STATE_DELIVERED)
                for path, content in self.deliveries[request.delivery_id].items()
            ]
            return v1.DeliveryReport(delivery_id=request.delivery_id, finished=True, success=True, files=files)
        artifact = v1.Artifact(sha256=digest(self.files[request.path]))
        return v1.SandboxFile(claim=v1.Claim(artifact=artifact))

    def sent(self):
        """The contents of all deliveries, in their order."""
        return [list(files.values()) for files in self.deliveries.values()]


class SendFile(unittest.TestCase):
    def run_with(self, chat, scenario, options=FAST_OPTIONS):
        async def run():
            async with AsyncDray(chat.endpoint.target, tenant="a", plaintext=True, options=options) as dray:
                await scenario(Toolkit(dray, session="s"))

        try:
            asyncio.run(run())
        finally:
            chat.may_continue.set()
            chat.endpoint.__exit__()

    async def send(self, tools, call_id, *paths):
        return await tools.call("send_file", {"paths": list(paths)}, call_id)

    async def cancel(self, chat, tools, kind, call_id, *paths):
        """Cancels a call while it waits for the reply to a request."""
        chat.hang_at(kind)
        call = asyncio.ensure_future(self.send(tools, call_id, *paths))
        await asyncio.to_thread(chat.waiting.wait)
        call.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call
        chat.may_continue.set()

    def test_a_cancelled_send_is_continued_by_the_next_call(self):
        for kind in (v1.SendFileRequested, v1.DeliveryOutcomeRequest):
            chat = FakeChat(report=b"one")

            async def scenario(tools):
                await self.cancel(chat, tools, kind, "call-1", "report")
                text = await self.send(tools, "call-2", "report")
                self.assertRegex(text, f"^{EARLIER} sent these files; nothing was sent again.*\nreport: delivered$")
                # The outcome is known now, so a further call is a request to send the file once more.
                self.assertEqual(await self.send(tools, "call-3", "report"), "report: delivered")

            self.run_with(chat, scenario)
            self.assertEqual(chat.requests[0], chat.requests[1])
            self.assertEqual(chat.sent(), [[b"one"], [b"one"]])

    def test_a_file_that_has_changed_since_an_unknown_outcome_is_sent(self):
        chat = FakeChat(report=b"one", other=b"same")

        async def scenario(tools):
            await self.cancel(chat, tools, v1.DeliveryOutcomeRequest, "call-1", "other", "report")
            chat.files[b"report"] = b"two"
            text = await self.send(tools, "call-2", "other", "report")
            lines = "other: delivered\nreport: delivered"
            sent_now = "The files have changed since then and were sent now:"
            self.assertEqual(text, f"{EARLIER} ended as follows:\n{lines}\n{sent_now}\n{lines}")
            # A repetition of the same call is the same delivery, whatever the files contain now.
            chat.files[b"report"] = b"three"
            text = await self.send(tools, "call-2", "other", "report")
            self.assertEqual(text, f"The same call sent these files before; nothing was sent again.\n{lines}")

        self.run_with(chat, scenario)
        self.assertEqual(chat.sent(), [[b"same", b"one"], [b"same", b"two"]])

    def test_files_that_cannot_be_compared_are_not_sent_again_by_the_same_call(self):
        chat = FakeChat(report=b"one")

        async def scenario(tools):
            await self.cancel(chat, tools, v1.DeliveryOutcomeRequest, "call-1", "report")
            gone = v1.Fault(code=v1.FAULT_CODE_NOT_FOUND, message="It is gone.")
            chat.failing = (v1.GetSandboxFileRequest, grpc.StatusCode.NOT_FOUND, gone)
            self.assertIn("To send them once more, call the tool again.", await self.send(tools, "call-2", "report"))

        self.run_with(chat, scenario)
        self.assertEqual(chat.sent(), [[b"one"]])

    def test_a_call_at_its_deadline_is_continued_and_a_refused_one_is_not(self):
        chat = FakeChat(report=b"one")

        async def scenario(tools):
            chat.hang_at(v1.DeliveryOutcomeRequest)
            text = await self.send(tools, "call-1", "report")
            self.assertIn(f"The delivery {chat.requests[0]} is not over yet.", text)
            chat.may_continue.set()
            self.assertIn(EARLIER, await self.send(tools, "call-2", "report"))
            denied = v1.Fault(code=v1.FAULT_CODE_DENIED, message="No.")
            chat.failing = (v1.SendFileRequested, grpc.StatusCode.PERMISSION_DENIED, denied)
            self.assertEqual(await self.send(tools, "call-3", "report"), "This failed: No.")
            chat.failing = None
            self.assertEqual(await self.send(tools, "call-4", "report"), "report: delivered")

        self.run_with(chat, scenario, CallOptions(timeout=2, retry=FAST_OPTIONS.retry))
        self.assertEqual(len(set(chat.requests)), 2)

    def test_the_number_of_remembered_deliveries_is_limited(self):
        chat = FakeChat()

        async def scenario(tools):
            for number in range(_deliveries.MAX_UNCONFIRMED + 5):
                tools._sender._remember((f"f{number}", ""), f"o{number}")
            remembered = tools._sender._unconfirmed
            self.assertEqual((len(remembered), next(iter(remembered))), (1000, ("f5", "")))

        self.run_with(chat, scenario)


if __name__ == "__main__":
    unittest.main()
