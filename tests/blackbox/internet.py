"""The simulated internet: a scripted DNS server and web servers that respond on every address to which packets arrive.

Runs inside one network namespace. Reads a script (JSON), prints "ready", appends one JSON line per question and per
request to a log, and ends when its standard input closes. Knows nothing of what is tested.
"""

import asyncio
import binascii
import gzip
import ipaddress
import json
import os
import ssl
import struct
import sys
import threading

TYPES = {1: "A", 5: "CNAME", 28: "AAAA"}
CODES = {"FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "REFUSED": 5}
HEAD_LIMIT = 65536
HOLD_SECONDS = 60.0  # How long a server that is slow on purpose holds a connection
TLS_HANDSHAKE = b"\x16"
ENDLESS_BYTES = 64 * 1024 * 1024


class Log:
    """Events, one JSON object per line. An event is in the file before its response is sent."""

    def __init__(self, path):
        self.file = open(path, "ab", buffering=0)

    def add(self, **event):
        self.file.write(json.dumps(event).encode() + b"\n")


class Zone:
    """Answers by name. A name has a list of answers: the first question of a type gets the first, the last one stays."""

    def __init__(self, names):
        self.names = {name.lower().rstrip("."): answers for name, answers in names.items()}
        self.question_counts = {}

    def next_answer(self, name, kind):
        """The next answer for this question, or None for an unknown name."""
        answers = self.names.get(name)
        if answers is None:
            return None
        count = self.question_counts.get((name, kind), 0)
        self.question_counts[(name, kind)] = count + 1
        return answers[min(count, len(answers) - 1)]

    def records(self, name, kind, answer):
        """Records of the answer, with those of an alias's target if the zone has it, as a recursive resolver sends them."""
        records = []
        for _ in range(16):
            if "CNAME" in answer:
                target = answer["CNAME"].lower().rstrip(".")
                records.append((name, 5, encode_name(target)))
                if kind == "CNAME" or target not in self.names:
                    return records
                name, answer = target, self.names[target][-1]
                continue
            for address in answer.get(kind, []):
                records.append((name, 1 if kind == "A" else 28, ipaddress.ip_address(address).packed))
            return records
        return records


def encode_name(name):
    out = b""
    for label in name.split("."):
        out += bytes([len(label)]) + label.encode("ascii")
    return out + b"\0"


def parse_question(message):
    """Name and type of the only question, and the bytes of the question."""
    labels, offset = [], 12
    while message[offset]:
        length = message[offset]
        labels.append(message[offset + 1 : offset + 1 + length].decode("ascii", "replace"))
        offset += 1 + length
    number = struct.unpack("!H", message[offset + 1 : offset + 3])[0]
    return ".".join(labels).lower(), TYPES.get(number, str(number)), message[12 : offset + 5]


def dns_response(zone, log, message, tcp, to):
    """The bytes of the answer, or None for silence."""
    name, kind, question = parse_question(message)
    log.add(event="dns", name=name, kind=kind, tcp=tcp, to=to)
    answer = zone.next_answer(name, kind)
    flags, records = 0x8180, []
    if answer is None:
        flags |= CODES["NXDOMAIN"]
    elif answer.get("code") == "SILENT":
        return None
    elif answer.get("code"):
        flags |= CODES[answer["code"]]
    elif answer.get("tcp_only") and not tcp:
        flags |= 0x0200
    else:
        records = zone.records(name, kind, answer)
    head = message[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    body = b"".join(
        encode_name(owner) + struct.pack("!HHIH", number, 1, 0, len(data)) + data
        for owner, number, data in records
    )
    return head + question + body


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, zone, log, to):
        self.zone, self.log, self.to = zone, log, to

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        try:
            answer = dns_response(self.zone, self.log, data, False, self.to)
        except (IndexError, struct.error):
            return
        if answer is not None:
            self.transport.sendto(answer, address)


async def dns_stream(zone, log, to, reader, writer):
    try:
        while True:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            answer = dns_response(zone, log, await reader.readexactly(length), True, to)
            if answer is not None:
                writer.write(struct.pack("!H", len(answer)) + answer)
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def pattern(size):
    """Bytes that are the same in every run and do not compress to nothing."""
    unit = b"".join(struct.pack("!I", number * 2654435761 & 0xFFFFFFFF) for number in range(256))
    return (unit * (size // len(unit) + 1))[:size]


def response(status, headers, body, length=True):
    lines = ["HTTP/1.1 %d Scripted" % status]
    lines += ["%s: %s" % pair for pair in headers]
    if length:
        lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def chunked(body):
    out = b""
    for start in range(0, len(body), 4096):
        chunk = body[start : start + 4096]
        out += b"%x\r\n" % len(chunk) + chunk + b"\r\n"
    return out + b"0\r\n\r\n"


def scripted_response(path, reached):
    """The response that the path names, as bytes; the few behaviours that take time are in `serve`."""
    parts = path.split("?")[0].strip("/").split("/")
    verb, rest = parts[0], parts[1:] + ["", ""]
    if verb == "bytes":
        return response(200, [("Content-Type", "application/octet-stream")], pattern(int(rest[0])))
    if verb == "chain":
        left = int(rest[0])
        if left:
            return response(302, [("Location", "/chain/%d" % (left - 1))], b"on the way")
        return response(200, [("Content-Type", "text/plain")], b"end of the chain\n")
    if verb == "to":
        location = binascii.unhexlify(rest[1])
        head = b"HTTP/1.1 %d Scripted\r\nLocation: " % int(rest[0])
        cookie = b"\r\nSet-Cookie: crumb=1; Path=/; Domain=example.com"
        return head + location + cookie + b"\r\nContent-Length: 5\r\n\r\nmoved"
    if verb == "gzip":
        packed = gzip.compress(pattern(int(rest[0])), mtime=0)
        return response(200, [("Content-Encoding", "gzip"), ("Content-Type", "text/plain")], packed)
    if verb == "bomb":
        packed = gzip.compress(bytes(int(rest[0])), mtime=0)
        return response(200, [("Content-Encoding", "gzip")], packed)
    if verb == "chunked":
        return response(200, [("Transfer-Encoding", "chunked")], chunked(pattern(int(rest[0]))), False)
    if verb == "named":
        disposition = 'attachment; filename="%s"' % binascii.unhexlify(rest[0]).decode("latin-1")
        return response(200, [("Content-Disposition", disposition), ("Content-Type", "text/csv")], b"a,b\n")
    if verb == "status":
        return response(int(rest[0]), [], b"not for anybody")
    if verb == "raw":
        return binascii.unhexlify(rest[0])
    return response(200, [("Content-Type", "text/plain")], ("reached %s\n" % reached).encode())


def response_to(path, reached):
    """The scripted response, or status 400 for an invalid path."""
    try:
        return scripted_response(path, reached)
    except ValueError:
        return response(400, [], b"")


async def serve(log, tls, reader, writer):
    host, port = writer.get_extra_info("sockname")[:2]
    log.add(event="connect", to=host, port=port, tls=tls)
    try:
        head = await asyncio.wait_for(reader.readexactly(1), HOLD_SECONDS)
        if head == TLS_HANDSHAKE:
            writer.write(response(400, [], b"this port speaks no TLS\n"))
            return
        head += await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HOLD_SECONDS)
        path = head.split(b" ", 2)[1].decode("latin-1")
        log.add(event="http", to=host, port=port, tls=tls, path=path, head=head.decode("latin-1"))
        if path.startswith("/silent"):
            await asyncio.wait_for(reader.read(1), HOLD_SECONDS)
        elif path.startswith("/drip"):
            await drip(writer)
        elif path.startswith("/endless"):
            await endless(writer)
        else:
            writer.write(response_to(path, host))
        await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.TimeoutError, asyncio.LimitOverrunError, ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


async def drip(writer):
    writer.write(b"HTTP/1.1 200 Scripted\r\nContent-Length: 1000000\r\n\r\n")
    for _ in range(int(HOLD_SECONDS * 2)):
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.5)


async def endless(writer):
    writer.write(b"HTTP/1.1 200 Scripted\r\n\r\n")
    chunk = pattern(65536)
    for _ in range(ENDLESS_BYTES // len(chunk)):
        writer.write(chunk)
        await writer.drain()


def tls_context(directory):
    """One certificate by default; a name whose first label is a file in the directory gets that one."""

    def load(name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(directory, name + ".pem"), os.path.join(directory, name + ".key"))
        return context

    contexts = {name[:-4]: load(name[:-4]) for name in os.listdir(directory) if name.endswith(".key")}
    usual = contexts["server"]

    def choose(connection, name, _context):
        if name is not None:
            connection.context = contexts.get(name.split(".")[0], usual)

    usual.sni_callback = choose
    return usual


async def run(script, log):
    zone = Zone(script.get("zone") or {})
    loop = asyncio.get_running_loop()
    for address in script.get("dns", []):
        await loop.create_datagram_endpoint(
            lambda to=address: Datagrams(zone, log, to), local_addr=(address, 53)
        )
        await asyncio.start_server(
            lambda reader, writer, to=address: dns_stream(zone, log, to, reader, writer), address, 53
        )
    secure = tls_context(script["tls_directory"]) if script.get("tls") else None
    for host in ("0.0.0.0", "::"):
        for port in script.get("plain", []):
            await asyncio.start_server(
                lambda reader, writer: serve(log, False, reader, writer), host, port, limit=HEAD_LIMIT
            )
        for port in script.get("tls", []):
            await asyncio.start_server(
                lambda reader, writer: serve(log, True, reader, writer), host, port, limit=HEAD_LIMIT, ssl=secure
            )
    print("ready", flush=True)
    await asyncio.Event().wait()


def end_with_the_parent():
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    with open(sys.argv[1], "rb") as file:
        plan = json.load(file)
    asyncio.run(run(plan, Log(sys.argv[2])))
