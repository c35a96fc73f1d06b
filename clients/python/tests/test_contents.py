"""Content that came inside a message, and the names of local files."""

import asyncio
import hashlib
import os
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path

from drayage import AsyncDray, Dray, FetchedFile, ResolvedArguments, v1
from tests.test_unit import FAST_OPTIONS, FakeEndpoint, FakeStore

BYTES = b"small"
FETCHED = FetchedFile(
    v1.FetchReply(content=v1.Content(inline=BYTES), name="small.csv", media_type="text/csv", size=len(BYTES))
)
ARGUMENTS = v1.ResolvedArguments(arguments=v1.Content(inline=b"{}"))
RESOLVED = ResolvedArguments(ARGUMENTS, b"{}")


class Services:
    """The service and the store of a test. Keeps the requests by their types, and the uploaded bodies."""

    def __init__(self, uploads=0):
        self.requests = {}
        self.store = FakeStore(statuses=[200] * uploads)
        self.endpoint = FakeEndpoint(self.reply)

    def reply(self, number, request, context):
        self.requests.setdefault(type(request).__name__, []).append(request)
        if isinstance(request, v1.PrepareUploadRequest):
            return v1.PrepareUploadReply(upload_id=request.name, url=v1.PresignedUrl(url=self.store.url))
        if isinstance(request, v1.FinishUploadRequest):
            digest = hashlib.sha256(self.store.received[-1]).digest()
            artifact = v1.Artifact(name=request.upload_id, sha256=digest)
            return v1.FinishUploadReply(claim=v1.Claim(store="s", artifact=artifact))
        return {
            "ExecSandboxRequest": v1.ExecSandboxReply,
            "IssueTicketRequest": v1.IssuedTicket,
            "PutSandboxFileRequest": v1.PlacedFile,
            "ReadAttachmentRequest": v1.ReadAttachmentReply,
            "SendFileRequested": v1.DeliveryAccepted,
        }[type(request).__name__]()

    def __enter__(self):
        self.client = Dray(self.endpoint.target, tenant="a", plaintext=True, options=FAST_OPTIONS)
        return self

    def __exit__(self, *rest):
        self.client.close()
        self.endpoint.__exit__(*rest)
        self.store.__exit__(*rest)


class InlineContent(unittest.TestCase):
    def test_content_from_a_message_is_stored_where_a_stored_file_is_needed(self):
        with Services(uploads=4) as services:
            dray = services.client
            dray.sandbox("docker:web").put(FETCHED, name="placed.csv")
            dray.send("s", files=[FETCHED])
            dray.download_ticket("s", FETCHED)
            dray.send("s", files=[RESOLVED])
        self.assertEqual(services.store.received, [BYTES, BYTES, BYTES, b"{}"])
        prepared = [(request.name, request.media_type) for request in services.requests["PrepareUploadRequest"]]
        self.assertEqual(prepared, [("small.csv", "text/csv")] * 3 + [("arguments.json", "application/json")])
        [put], [ticket] = services.requests["PutSandboxFileRequest"], services.requests["IssueTicketRequest"]
        self.assertEqual((put.claim.artifact.name, put.name), ("small.csv", b"placed.csv"))
        self.assertEqual((ticket.sha256, ticket.name), (hashlib.sha256(BYTES).digest(), "small.csv"))
        names = [request.claims[0].artifact.name for request in services.requests["SendFileRequested"]]
        self.assertEqual(names, ["small.csv", "arguments.json"])

    def test_content_from_a_message_travels_inside_a_request_that_can_hold_it(self):
        with Services() as services:
            services.client.read(FETCHED)
            services.client.read(FETCHED, name="other.txt")
            services.client.sandbox("docker:web").exec(["cat"], stdin=FETCHED)
        first, second = services.requests["ReadAttachmentRequest"]
        self.assertEqual((first.source.inline, first.name, second.name), (BYTES, "small.csv", "other.txt"))
        self.assertEqual(services.requests["ExecSandboxRequest"][0].input, BYTES)

    def test_content_from_a_message_is_read_opened_and_downloaded(self):
        async def open_with_asyncio(target):
            async with AsyncDray(target, tenant="a", plaintext=True) as dray:
                return b"".join([chunk async for chunk in dray.open(RESOLVED)])

        with Services() as services, tempfile.TemporaryDirectory() as directory:
            dray = services.client
            for stored, content in ((FETCHED, BYTES), (RESOLVED, b"{}"), (v1.Content(inline=b"x"), b"x")):
                self.assertEqual(dray.read_bytes(stored), content)
                self.assertEqual(b"".join(dray.open(stored)), content)
                self.assertEqual(dray.download(stored, Path(directory) / "f").read_bytes(), content)
            self.assertEqual(asyncio.run(open_with_asyncio(services.endpoint.target)), b"{}")
        self.assertEqual(services.requests, {})

    def test_a_declared_type_that_cannot_be_a_header_is_left_out(self):
        for media_type in ("text/ü", "text/x\r\nx: y"):
            fetched = FetchedFile(v1.FetchReply(content=v1.Content(inline=BYTES), media_type=media_type))
            with Services(uploads=1) as services:
                services.client.send("s", files=[fetched])
            [request] = services.requests["PrepareUploadRequest"]
            self.assertEqual((request.name, request.media_type), ("file", ""))


class Pipes(unittest.TestCase):
    def test_a_pipe_is_refused_by_its_path_before_it_is_opened(self):
        with tempfile.TemporaryDirectory() as directory, Services() as services:
            path = Path(directory) / "pipe"
            os.mkfifo(path)
            opened = AssertionError("opening it would wait for a writer")
            with unittest.mock.patch.object(Path, "open", side_effect=opened):
                with self.assertRaisesRegex(ValueError, "is a pipe"):
                    services.client.store(path)


class Digests(unittest.TestCase):
    def test_bytes_are_not_digested_in_the_thread_of_the_event_loop(self):
        threads, digest = [], hashlib.sha256

        def record(data=b""):
            threads.append(threading.current_thread())
            return digest(data)

        async def store(services):
            async with AsyncDray(services.endpoint.target, tenant="a", plaintext=True, options=FAST_OPTIONS) as dray:
                with unittest.mock.patch.object(hashlib, "sha256", record):
                    await dray.store(BYTES)

        with Services(uploads=1) as services:
            asyncio.run(store(services))
            self.assertEqual(services.store.received, [BYTES])
            [request] = services.requests["PrepareUploadRequest"]
        self.assertEqual((request.size, request.sha256), (len(BYTES), digest(BYTES).digest()))
        self.assertTrue(threads)
        self.assertNotIn(threading.main_thread(), threads)


class Names(unittest.TestCase):
    NAME = b"caf\xe9.txt"

    def test_a_file_whose_name_is_not_utf8_is_stored_and_placed(self):
        with tempfile.TemporaryDirectory() as directory, Services(uploads=5) as services:
            path = Path(directory) / os.fsdecode(self.NAME)
            path.write_bytes(BYTES)
            dray = services.client
            dray.store(path)
            dray.send("s", files=[str(path)])
            box = dray.sandbox("docker:web")
            box.put(path)
            with path.open("rb") as file:
                box.put(file)
            box.put(BYTES, name=os.fsdecode(self.NAME))
        names = {request.name for request in services.requests["PrepareUploadRequest"]}
        self.assertEqual(names, {"caf\ufffd.txt"})
        placed = [request.name for request in services.requests["PutSandboxFileRequest"]]
        self.assertEqual(placed, [b"", b"", self.NAME])


if __name__ == "__main__":
    unittest.main()
