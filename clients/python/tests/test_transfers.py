"""Bodies over slow lines, stores that refuse early, and the local files of downloads."""

import contextlib
import dataclasses
import errno
import io
import os
import socket
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

from drayage import DeadlineError, Dray, RetryPolicy, UnavailableError, v1
from drayage._effects import DownloadEffect, UploadEffect
from drayage import _http
from drayage._http import Transfers
from drayage._transfer import Transfer, TransferCancelled
from drayage._transfer_socket import connect
from drayage.faults import deadline_error
from tests.test_unit import ARTIFACT, CONTENT, FAST_OPTIONS

ONE_ATTEMPT = RetryPolicy(max_attempts=1)
MIB = 1 << 20


class TricklingStore:
    """A store that sends a byte each time that its client looks at the remaining time."""

    def __init__(self, start, byte):
        self.byte = byte
        self.connection = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/o?sig=1"
        self.serving = threading.Thread(target=self.serve, args=(start,))
        self.serving.start()

    def serve(self, start):
        connection, _ = self.listener.accept()
        connection.recv(65536)
        self.connection = connection
        # With a first byte, after which the client looks at the remaining time.
        connection.sendall(start + self.byte)

    def send_byte(self):
        if self.connection is not None:
            self.connection.sendall(self.byte)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.serving.join()
        self.connection.close()
        self.listener.close()


class RefusingStore:
    """A store that answers with a status after the head of a request, and closes without reading the body."""

    def __init__(self, status):
        self.status = status
        self.requests = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/o?sig=1"
        threading.Thread(target=self.serve).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self.requests += 1
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % self.status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class SlowSocket:
    """A socket over a line that takes 16 KiB in 10 s, in virtual time, with the timeouts of a real one."""

    def __init__(self):
        self.sent = bytearray()
        self.timeout = _http.MAX_SILENCE_SECONDS

    def settimeout(self, seconds):
        self.timeout = seconds

    def send(self, data):
        if self.timeout < 10:
            raise TimeoutError("timed out")
        self.sent += data[: 16 * 1024]
        return min(len(data), 16 * 1024)

    def sendall(self, data):
        # The timeout is for the whole call, as that of `socket.sendall` is.
        seconds = 0
        while data:
            seconds += 10
            if seconds > self.timeout:
                raise TimeoutError("timed out")
            data = data[self.send(data) :]

    def makefile(self, mode, **_):
        return io.BytesIO(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    def close(self):
        pass


class SlowLines(unittest.TestCase):
    def test_a_store_that_sends_slowly_does_not_hold_its_client_beyond_the_deadline(self):
        class ShortTransfer(Transfer):
            """A transfer whose deadline passes when its time was looked at 20 times."""

            count = 0

            def remaining(self):
                store.send_byte()
                self.count += 1
                if self.count > 20:
                    raise deadline_error()
                return super().remaining()

        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(CONTENT)
        # A transfer that does not look at its time gets nothing, and fails for another reason.
        with unittest.mock.patch.object(_http, "MAX_SILENCE_SECONDS", 1.0):
            for start in (head + b"\r\n", head, b""):
                with TricklingStore(start, b"H") as store:
                    effect = DownloadEffect(store.url, ARTIFACT, None)
                    with self.assertRaises(DeadlineError):
                        Transfers(None).download(ShortTransfer(time.monotonic() + 60), effect, ONE_ATTEMPT)

    def test_a_store_that_is_silent_until_the_deadline_is_reported_as_such(self):
        with TricklingStore(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", b"") as store:
            with self.assertRaises(DeadlineError):
                effect = DownloadEffect(store.url, ARTIFACT, None)
                Transfers(None).download(Transfer(time.monotonic() + 0.2), effect, FAST_OPTIONS.retry)

    def test_an_upload_may_take_long_while_the_store_takes_bytes(self):
        slow_socket, content = SlowSocket(), bytes(2 * MIB)
        with unittest.mock.patch.object(_http, "connect", lambda *_: slow_socket):
            effect = UploadEffect("http://127.0.0.1:1/o", {}, content, len(content))
            Transfers(None).upload(Transfer(time.monotonic() + 3600), effect, ONE_ATTEMPT)
        self.assertTrue(slow_socket.sent.endswith(b"\r\n\r\n" + content))


class Connecting(unittest.TestCase):
    def test_a_lookup_does_not_hold_its_client_beyond_the_deadline(self):
        has_ended, may_end = threading.Event(), threading.Event()

        def look_up(*_, **__):
            may_end.wait(20)
            has_ended.set()
            return []

        self.addCleanup(may_end.set)
        with unittest.mock.patch.object(socket, "getaddrinfo", look_up), self.assertRaises(DeadlineError):
            effect = DownloadEffect("http://store.example/o", ARTIFACT, None)
            Transfers(None).download(Transfer(time.monotonic() + 0.2), effect, FAST_OPTIONS.retry)
        self.assertFalse(has_ended.is_set())

    def test_cancelling_ends_a_transfer_while_it_connects(self):
        is_connecting, connect = threading.Event(), socket.socket.connect

        def record(connection, address):
            is_connecting.set()
            connect(connection, address)

        def download():
            with contextlib.suppress(TransferCancelled):
                Transfers(None).download(transfer, DownloadEffect(url, ARTIFACT, None), ONE_ATTEMPT)

        with contextlib.ExitStack() as stack:
            # A listener whose queue is full does not respond to further connections.
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            address = listener.getsockname()
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(address)
            url, transfer = f"http://127.0.0.1:{address[1]}/o", Transfer(time.monotonic() + 60)
            with unittest.mock.patch.object(socket.socket, "connect", record):
                downloading = threading.Thread(target=download, daemon=True)
                downloading.start()
                is_connecting.wait()
                transfer.cancel()
                downloading.join(10)
            self.assertFalse(downloading.is_alive())

    def test_the_next_address_is_used_if_the_first_refuses(self):
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as closed:
            refusing = closed.getsockname()
            closed.close()
            entries = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", a) for a in (refusing, listener.getsockname())]
            with unittest.mock.patch.object(socket, "getaddrinfo", lambda *_, **__: entries):
                with connect(Transfer(time.monotonic() + 60), "store.example", 80, None, 30) as connection:
                    self.assertEqual(connection.getpeername(), listener.getsockname())


class EarlyResponses(unittest.TestCase):
    def upload(self, store):
        content = bytes(8 * MIB)
        effect = UploadEffect(store.url, {}, content, len(content))
        Transfers(None).upload(Transfer(time.monotonic() + 60), effect, FAST_OPTIONS.retry)

    def test_the_status_of_a_store_that_refuses_before_it_read_the_body_decides(self):
        with RefusingStore(403) as store:
            with self.assertRaises(UnavailableError) as caught:
                self.upload(store)
        fault = caught.exception.fault
        self.assertEqual((fault.detail, fault.retryable, store.requests), ("upload_refused", False, 1))
        self.assertIn("status 403", fault.message)

    def test_an_early_response_of_a_failing_store_or_one_that_took_nothing_is_repeated(self):
        for status in (503, 200):
            with RefusingStore(status) as store:
                with self.assertRaises(UnavailableError) as caught:
                    self.upload(store)
            self.assertEqual(caught.exception.fault.detail, "transfer_failed")
            self.assertEqual(store.requests, FAST_OPTIONS.retry.max_attempts)


class Targets(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def download(self, target):
        with Dray("127.0.0.1:1", tenant="a", plaintext=True) as dray:
            dray.download(v1.Content(inline=b"new"), target)

    def test_links_stay_and_their_files_are_replaced(self):
        real, other = self.directory / "real", self.directory / "other"
        other.mkdir()
        for text in ("real", "chain", "missing", "other/missing"):
            self.directory.joinpath("real").write_bytes(b"old")
            link = self.directory / f"link-{text.replace('/', '-')}"
            link.symlink_to(text)
            if text == "chain":
                (self.directory / "chain").symlink_to(real)
            self.download(link)
            self.assertEqual((link.is_symlink(), os.readlink(link), link.read_bytes()), (True, text, b"new"))
        self.assertEqual((self.directory / "other" / "missing").read_bytes(), b"new")
        self.assertEqual([path.name for path in self.directory.iterdir() if path.name.startswith(".drayage")], [])

    def test_links_in_a_circle_are_an_error_and_stay(self):
        for name, target in (("a", "b"), ("b", "a")):
            (self.directory / name).symlink_to(target)
        with self.assertRaises(OSError) as caught:
            self.download(self.directory / "a")
        self.assertEqual(caught.exception.errno, errno.ELOOP)
        self.assertTrue((self.directory / "a").is_symlink())

    def test_a_target_that_is_not_a_regular_file_is_refused_before_anything_is_fetched(self):
        pipe, link = self.directory / "pipe", self.directory / "link"
        os.mkfifo(pipe)
        link.symlink_to(pipe)
        unreachable = DownloadEffect("http://127.0.0.1:1/", ARTIFACT, None)
        for target, kind in ((pipe, FileExistsError), (link, FileExistsError), (self.directory, IsADirectoryError)):
            effect = dataclasses.replace(unreachable, target=target)
            with self.assertRaises(kind) as caught:
                Transfers(None).download(Transfer(time.monotonic() + 60), effect, ONE_ATTEMPT)
            self.assertEqual(caught.exception.filename, str(target))
        self.assertTrue(pipe.is_fifo() and link.is_symlink())


if __name__ == "__main__":
    unittest.main()
