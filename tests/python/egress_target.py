"""The target of proxied connections: egress_target.py ADDRESS NAME_SERVER_ADDRESS NAME CERTIFICATE KEY.

Port 443 echoes bytes, port 80 serves files, port 8443 responds over TLS, and UDP port 53 of the second address is a
name server on which NAME has ADDRESS. Prints `ready`, then a line of JSON with the remote port of each connection to
the ports 443 and 8443 when its first byte has arrived, and another line at its end. `/SIZE/NAME` on port 80 has SIZE
bytes, which repeat NAME, and may be cached for an hour. The program ends when its standard input closes.
"""

import asyncio
import json
import socket
import ssl
import sys

ADDRESS, NAME_SERVER_ADDRESS, NAME, CERTIFICATE, KEY = sys.argv[1:]


def report(port, what):
    print(json.dumps({"port": port, "what": what}), flush=True)


def peer_port(writer):
    """The port of the other end; None for a lost TLS connection, which does not know its port any more."""
    name = writer.get_extra_info("peername")
    return name and name[1]


async def close(writer):
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass


async def echo(reader, writer):
    port = peer_port(writer)
    if port is None:
        return await close(writer)
    try:
        first = await reader.read(65536)
        if first:
            report(port, "received")
        while first:
            writer.write(first)
            await writer.drain()
            first = await reader.read(65536)
    except OSError:
        pass
    report(port, "ended")
    await close(writer)


async def respond_over_tls(reader, writer):
    port = peer_port(writer)
    if port is None:
        return await close(writer)
    # The TLS handshake is complete, so bytes have arrived.
    report(port, "received")
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    report(port, "ended")
    await close(writer)


async def serve_file(reader, writer):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        _, size, name = head.split(b" ")[1].split(b"/")
        body = (name * (int(size) // len(name) + 1))[: int(size)]
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {size.decode()}\r\nCache-Control: max-age=3600\r\n"
        writer.write(head.encode() + b'ETag: "' + name + b'"\r\nConnection: close\r\n\r\n')
        # In parts, so that a kill can happen between them.
        for start in range(0, len(body), 65536):
            writer.write(body[start : start + 65536])
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    await close(writer)


class NameServer(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, query, peer):
        end = query.index(b"\0", 12) + 1
        question = query[12 : end + 4]
        # RFC 1035: a record of type A with the name of the question, or none.
        records = b""
        if question[-4:-2] == b"\0\1" and NAME.split(".")[0].encode() in question.lower():
            records = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(ADDRESS)
        counts = bytes([0, 1, 0, bool(records), 0, 0, 0, 0])
        self.transport.sendto(query[:2] + b"\x81\x80" + counts + question + records, peer)


async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, KEY)
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(NameServer, local_addr=(NAME_SERVER_ADDRESS, 53))
    await asyncio.start_server(echo, ADDRESS, 443)
    await asyncio.start_server(respond_over_tls, ADDRESS, 8443, ssl=context)
    await asyncio.start_server(serve_file, ADDRESS, 80)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
