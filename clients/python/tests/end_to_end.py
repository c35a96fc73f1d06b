"""The client against the real services, over TLS with a token. Prints nothing; fails with an exception.

The variable DRAYAGE_SCENARIO is JSON: target, ca (PEM file), token and other_token of another tenant, narrow_token with the
scope `dray.v1.Files`, box (a directory that is a local sandbox) and inbox (a directory for deliveries).
"""

import asyncio
import contextlib
import json
import os
import select
import unittest
import urllib.request
from pathlib import Path

from drayage import (
    AsyncDray,
    CallOptions,
    CommandEnd,
    DeadlineError,
    DeniedError,
    Dray,
    InvalidParameterError,
    NotFoundError,
    Tls,
    UnauthenticatedError,
    UnavailableError,
    methods,
    v1,
)

SCENARIO = json.loads(os.environ["DRAYAGE_SCENARIO"])
BOX = Path(SCENARIO["box"])
ADDRESS = f"local:{BOX}"
# The size is above that of a message and not a multiple of any chunk.
LARGE = os.urandom(5 * 1024 * 1024 + 17)
# Writes in rounds. Each round waits for a file, which the test creates when it has the output of the round before.
STEPPED_SCRIPT = r"""printf '\377'; wc -c | tr -d ' \n'; printf '\376' >&2; for name in one two; do
    printf $name; printf $name >&2; until [ -e "$1-$name" ]; do sleep 0.02; done
done; printf end; exit 3"""
ENDLESS_COMMAND = ["sh", "-c", "echo $$; exec sleep 600"]


def wait_for_end(process):
    """Waits for the end of a process, which makes its descriptor readable. False after a minute."""
    ended, _, _ = select.select([process], [], [], 60)
    os.close(process)
    return bool(ended)


def connect(token, kind=Dray):
    tls = Tls(ca_certificate=SCENARIO["ca"], server_name="localhost")
    return kind(SCENARIO["target"], token=token, tls=tls, options=CallOptions(timeout=120))


class EndToEnd(unittest.TestCase):
    def setUp(self):
        self.dray = connect(SCENARIO["token"])
        self.addCleanup(self.dray.close)

    def test_a_large_file_is_put_into_a_sandbox_and_read_back_unchanged(self):
        source, copy = BOX.parent / "large.bin", BOX.parent / "copy.bin"
        source.write_bytes(LARGE)
        sandbox = self.dray.sandbox(ADDRESS)
        placed = sandbox.put(source, directory=str(BOX))
        self.assertEqual((BOX / "large.bin").read_bytes(), LARGE)
        self.assertEqual((placed.path, placed.size), (str(BOX / "large.bin"), len(LARGE)))
        self.assertEqual(placed.receipt.sha256.hex(), placed.sha256)
        found = sandbox.get("large.bin", to=copy)
        self.assertEqual(copy.read_bytes(), LARGE)
        self.assertEqual(found.sha256, placed.sha256)
        self.assertEqual(self.dray.read_bytes(found), LARGE)
        entry = sandbox.stat("large.bin")
        self.assertEqual((entry.kind, entry.size), ("file", len(LARGE)))
        listing = sandbox.ls()
        self.assertIn("large.bin", [Path(entry.path).name for entry in listing.entries])
        sandbox.remove("large.bin")
        with self.assertRaises(NotFoundError):
            sandbox.stat("large.bin")

    def test_a_program_runs_with_its_input_and_environment_and_its_failure_is_a_result(self):
        sandbox = self.dray.sandbox(ADDRESS)
        script = 'cat | wc -c; printf %s "$NAME" >&2; exit 3'
        ran = sandbox.exec(["sh", "-c", script], stdin=b"x" * 100_000, environment={"NAME": "two words"})
        self.assertEqual((ran.state, ran.exit_code, ran.signal, ran.truncated), ("exited", 3, 0, False))
        self.assertEqual((ran.stdout.strip(), ran.stderr), (b"100000", b"two words"))
        long = sandbox.exec(["head", "-c", "200000", "/dev/zero"])
        self.assertEqual(long.stdout, bytes(200_000))
        slow = sandbox.exec(["sh", "-c", "echo begun; sleep 60"], timeout=1)
        self.assertEqual((slow.state, slow.exit_code, slow.stdout), ("timed_out", 137, b"begun\n"))
        with self.assertRaises(NotFoundError) as missing:
            sandbox.exec(["no-such-program"])
        self.assertEqual(missing.exception.fault.detail, "program_not_found")
        with self.assertRaises(TypeError):
            sandbox.exec("ls -l")

    def test_outputs_of_a_program_are_received_while_it_runs(self):
        sandbox = self.dray.sandbox(ADDRESS)
        found = {"stdout": b"", "stderr": b""}
        ends = []
        for event in sandbox.exec_stream(["sh", "-c", STEPPED_SCRIPT, "sh", "sync"], stdin=b"x" * 100_000):
            self.assertEqual(ends, [])
            if isinstance(event, CommandEnd):
                ends.append(event)
                continue
            found[event.output] += event.data
            for name in [b"one", b"two"]:
                # Lets the program continue.
                if found["stdout"].endswith(name) and found["stderr"].endswith(name):
                    (BOX / f"sync-{name.decode()}").touch()
        self.assertEqual(found, {"stdout": b"\xff100000onetwoend", "stderr": b"\xfeonetwo"})
        self.assertEqual([(end.state, end.exit_code, end.truncated) for end in ends], [("exited", 3, False)])
        self.assertEqual(ends[0].message.stdout.head, found["stdout"])

    def test_a_program_ends_when_its_reader_stops(self):
        events = self.dray.sandbox(ADDRESS).exec_stream(ENDLESS_COMMAND)
        process = os.pidfd_open(int(next(events).data))
        events.close()
        self.assertTrue(wait_for_end(process))
        with self.assertRaises(NotFoundError):
            list(self.dray.sandbox(ADDRESS).exec_stream(["no-such-program"]))
        with self.assertRaises(TypeError):
            list(self.dray.sandbox(ADDRESS).exec_stream("ls -l"))

    def test_arguments_of_every_size_are_resolved(self):
        small = self.dray.resolve({"text": "Grüße", "number": 1})
        self.assertEqual(small.arguments, {"text": "Grüße", "number": 1})
        self.assertEqual(self.dray.resolve('{"n": 1e400}').json, '{"n": 1e400}')
        large = {"text": "x" * 300_000}
        self.assertEqual(self.dray.resolve(large).arguments, large)
        with self.assertRaises(InvalidParameterError) as caught:
            self.dray.resolve({"note": "file:text::http://127.0.0.1/"})
        self.assertEqual(caught.exception.parameter, "note")
        self.assertIn("Parameter note is invalid", caught.exception.tool_message)

    def test_a_published_tool_call_has_one_outcome(self):
        dray = self.dray.with_options(operation_id="scenario-call-1")
        first = dray.publish_tool_call("t", {"text": "plain"}, tool_call_id="c1")
        again = dray.publish_tool_call("t", {"text": "plain"}, tool_call_id="c1")
        self.assertEqual([first.operation_id, again.operation_id], ["scenario-call-1"] * 2)
        self.assertEqual([first.duplicate, again.duplicate], [False, True])
        outcome = first.outcome(timeout=60)
        self.assertEqual((outcome.tool_call_id, outcome.arguments()), ("c1", {"text": "plain"}))
        self.assertEqual(self.dray.tool_call("scenario-call-1").outcome().arguments(), {"text": "plain"})
        rejected = self.dray.publish_tool_call("t", {"note": "file:text::http://127.0.0.1/"}).outcome(timeout=60)
        self.assertIsNone(rejected.resolved)
        self.assertIn("Parameter note is invalid", rejected.tool_message)
        with self.assertRaises(InvalidParameterError):
            rejected.arguments()

    def test_documents_are_read_from_the_store(self):
        stored = self.dray.store(b"fruit,price\napple,3\n", name="prices.csv", media_type="text/csv")
        document = self.dray.read(stored, name="prices.csv")
        self.assertEqual(document.error_code, "")
        self.assertIn("apple", document.text)

    def test_internal_addresses_are_refused_with_advice_for_the_caller(self):
        with self.assertRaises(DeniedError) as caught:
            self.dray.fetch("http://169.254.169.254/")
        self.assertEqual(caught.exception.fault.detail, "ssrf_blocked")
        self.assertFalse(caught.exception.fault.retryable)

    def test_files_are_sent_to_a_chat_and_have_receipts(self):
        (BOX / "report.txt").write_text("done")
        self.dray.bind_session("s1", sandbox=ADDRESS, chat=f"cli:{SCENARIO['inbox']}")
        stored = self.dray.store(b"stored", name="stored.txt")
        dray = self.dray.with_options(operation_id="scenario-send-1")
        delivery = dray.send("s1", paths=["report.txt"], files=[stored], message="Here.")
        self.assertTrue(dray.send("s1", paths=["report.txt"], files=[stored], message="Here.").duplicate)
        report = delivery.outcome(timeout=60)
        self.assertTrue(report.success, report.message)
        self.assertEqual([file.state for file in report.files], ["copied", "copied"])
        inbox = Path(SCENARIO["inbox"])
        self.assertEqual((inbox / "report.txt").read_text(), "done")
        self.assertEqual((inbox / "stored.txt").read_text(), "stored")
        self.assertIn("scenario-send-1", [receipt.delivery_id for receipt in self.dray.receipts(session="s1")])

    def test_files_are_uploaded_and_downloaded_through_tickets_that_can_be_listed_and_revoked(self):
        dray = self.dray
        dray.bind_session("s-tickets", sandbox=ADDRESS)
        issued = dray.upload_ticket("s-tickets", max_bytes=100, name="in.txt", to="sandbox:")
        request = urllib.request.Request(issued.url, b"through a ticket", method="PUT")
        with urllib.request.urlopen(request, timeout=60) as response:
            receipt = json.load(response)["receipt"]
        self.assertEqual(Path(receipt["path"].removeprefix("sandbox:")).read_bytes(), b"through a ticket")
        used = dray.ticket(issued.ticket.ticket_id)
        self.assertEqual((used.direction, used.state, used.max_bytes), ("upload", "complete", 100))
        stored = dray.store(b"stored", name="out.txt")
        out = dray.download_ticket("s-tickets", stored)
        with urllib.request.urlopen(out.url, timeout=60) as response:
            self.assertEqual(response.read(), b"stored")
        open_ticket = dray.upload_ticket("s-tickets").ticket
        states = {ticket.ticket_id: ticket.state for ticket in dray.tickets("s-tickets")}
        self.assertEqual(states[open_ticket.ticket_id], "open")
        self.assertEqual(dray.revoke_ticket(open_ticket.ticket_id).state, "revoked")
        with self.assertRaises(NotFoundError):
            dray.revoke_ticket(open_ticket.ticket_id)
        other = connect(SCENARIO["other_token"])
        with other, self.assertRaises(NotFoundError):
            other.ticket(issued.ticket.ticket_id)
        with self.assertRaises(ValueError):
            dray.upload_ticket("s-tickets", to="elsewhere")

    def test_the_asyncio_client_does_the_same(self):
        async def scenario():
            async with connect(SCENARIO["token"], AsyncDray) as dray:
                sandbox = dray.sandbox(ADDRESS)
                placed = await sandbox.put(LARGE, name="async.bin")
                found = await sandbox.get(placed.path)
                ran = await sandbox.exec(["wc", "-c", placed.path])
                self.assertEqual(int(ran.stdout.split()[0]), len(LARGE))
                streamed = b""
                async for event in sandbox.exec_stream(["sh", "-c", STEPPED_SCRIPT, "sh", "async"]):
                    if isinstance(event, CommandEnd):
                        self.assertEqual(event.exit_code, 3)
                    else:
                        streamed += event.data
                        for name in ["one", "two"]:
                            if streamed.count(name.encode()) == 2:
                                (BOX / f"async-{name}").touch()
                self.assertEqual(len(streamed), len(b"\xff0one\xfeonetwotwoend"))
                async with contextlib.aclosing(sandbox.exec_stream(ENDLESS_COMMAND)) as events:
                    process = os.pidfd_open(int((await anext(events)).data))
                self.assertTrue(await asyncio.to_thread(wait_for_end, process))
                self.assertEqual(await dray.read_bytes(found), LARGE)
                calls = [await dray.publish_tool_call("t", {"n": number}) for number in range(5)]
                outcomes = await asyncio.gather(*(call.outcome(timeout=60) for call in calls))
                self.assertEqual([outcome.arguments() for outcome in outcomes], [{"n": n} for n in range(5)])
                probe = v1.ProbeSandboxRequest(sandbox=v1.SandboxRef(address=ADDRESS))
                self.assertEqual((await dray.call(methods.SANDBOXES_PROBE, probe)).handle.backend, "local")

        asyncio.run(scenario())

    def test_an_unknown_caller_and_a_missing_scope_are_refused(self):
        for token in [None, "another-token"]:
            with connect(token) as stranger, self.assertRaises(UnauthenticatedError) as caught:
                stranger.resolve({})
            self.assertTrue(caught.exception.fault.advice)
        with connect(SCENARIO["narrow_token"]) as narrow:
            self.assertEqual(narrow.resolve({"a": 1}).arguments, {"a": 1})
            with self.assertRaises(DeniedError) as caught:
                narrow.sandbox(ADDRESS).ls()
            for run in [lambda box: box.exec(["true"]), lambda box: list(box.exec_stream(["true"]))]:
                with self.assertRaises(DeniedError) as refused:
                    run(narrow.sandbox(ADDRESS))
                self.assertEqual(refused.exception.fault.detail, "missing_scope")
            self.assertEqual(caught.exception.fault.detail, "missing_scope")

    def test_an_endpoint_with_another_certificate_is_not_trusted(self):
        with Dray(SCENARIO["target"], token=SCENARIO["token"], tls=Tls(server_name="localhost")) as dray:
            with self.assertRaises(UnavailableError) as caught:
                dray.resolve({})
        self.assertEqual(caught.exception.fault.detail, "untrusted_certificate")

    def test_another_tenant_reaches_nothing_of_the_first(self):
        stored = self.dray.store(b"private", name="private.txt")
        published = self.dray.publish_tool_call("t", {"text": "private"})
        published.outcome(timeout=60)
        with connect(SCENARIO["other_token"]) as other:
            with self.assertRaises(DeniedError):
                other.read_bytes(stored)
            with self.assertRaises(DeadlineError):
                # An operation of another tenant looks like one that has not ended.
                other.tool_call(published.operation_id).outcome(timeout=1)
            with self.assertRaises(DeniedError):
                other.sandbox(ADDRESS).ls()
            with self.assertRaises(DeniedError) as refused:
                other.sandbox(ADDRESS).exec(["true"])
            self.assertEqual(refused.exception.fault.detail, "command_denied")
        renamed = v1.Claim.FromString(stored.SerializeToString())
        renamed.artifact.tenant = "other"
        with self.assertRaises((DeniedError, NotFoundError)):
            self.dray.read_bytes(renamed)


if __name__ == "__main__":
    unittest.main()
