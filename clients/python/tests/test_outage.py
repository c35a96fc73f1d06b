"""The publisher while its NATS server is away. Needs `nats-server`."""

import asyncio
import socket
import subprocess
import tempfile
import time
import unittest

import nats

from drayage import CallOptions, RetryPolicy, UnavailableError
from drayage.bus import WORK_STREAM, AsyncPublisher

OPTIONS = CallOptions(timeout=60, retry=RetryPolicy(first_delay=0.01, max_delay=0.1))
OUTAGE_SECONDS = 1.0
"""Time without a server in which no publication may end."""


class Server:
    """A NATS server with the stream of work, which keeps its port and its messages when it is stopped and started."""

    def __init__(self, directory):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._directory = directory
        self._process = None
        self.url = f"nats://127.0.0.1:{self._port}"

    async def start(self):
        """Starts the server. Returns when it accepts connections."""
        arguments = ["nats-server", "-a", "127.0.0.1", "-p", str(self._port), "-js", "-sd", self._directory]
        self._process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                self.check()
                await asyncio.sleep(0.01)
                continue
            writer.close()
            return

    def check(self):
        """Raises if the server has ended by itself."""
        if self._process.poll() is not None:
            raise AssertionError(f"nats-server ended with {self._process.returncode}")

    def stop(self):
        """Kills the server."""
        self._process.kill()
        self._process.wait()


class Outages(unittest.TestCase):
    def run_with_server(self, scenario):
        async def run():
            with tempfile.TemporaryDirectory() as directory:
                server = Server(directory)
                await server.start()
                try:
                    async with await nats.connect(server.url, max_reconnect_attempts=-1) as owner:
                        stream = owner.jetstream()
                        await stream.add_stream(name=WORK_STREAM, subjects=["dray.work.>"])
                        settings = {"tenant": "acme", "options": OPTIONS, "reconnect_time_wait": 0.1}
                        async with await AsyncPublisher.connect(server.url, **settings) as publisher:
                            await scenario(server, stream, publisher)
                finally:
                    server.stop()

        asyncio.run(run())

    async def lose_connection(self, server, publisher):
        server.stop()
        while publisher._connection.is_connected:
            await asyncio.sleep(0.01)

    def test_calls_that_are_published_in_an_outage_are_confirmed_after_it(self):
        async def scenario(server, stream, publisher):
            await self.lose_connection(server, publisher)
            arguments = {"text": "x" * 60 * 1024}
            calls = [asyncio.create_task(publisher.publish_tool_call("t", arguments)) for _ in range(50)]
            # Together they are larger than the buffer of the library.
            done, _ = await asyncio.wait(calls, timeout=OUTAGE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            self.assertEqual([call.exception() for call in done], [])
            await server.start()
            published = await asyncio.gather(*calls)
            self.assertEqual(len({work.operation_id for work in published}), 50)
            state = (await stream.stream_info(WORK_STREAM)).state
            self.assertEqual(state.messages, 50)

        self.run_with_server(scenario)

    def test_a_call_ends_at_its_deadline_when_the_server_stays_away(self):
        async def scenario(server, stream, publisher):
            await self.lose_connection(server, publisher)
            begin = time.monotonic()
            with self.assertRaises(UnavailableError) as caught:
                await publisher.publish_tool_call("t", {}, timeout=0.5)
            self.assertEqual((caught.exception.fault.detail, caught.exception.fault.retryable), ("unconfirmed", True))
            self.assertLess(time.monotonic() - begin, 5)
            self.assertEqual(publisher._connection.pending_data_size, 0)

        self.run_with_server(scenario)


if __name__ == "__main__":
    unittest.main()
