"""Sends packets that the binary must never send: one connection attempt to each given address, to prove that the counters count.

Reads a JSON list of {"name", "address"} from standard input and prints the result of each name: "answered" when a server
responded, "connected" or "sent" when none did. Addresses to which the kernel does not connect get a bare SYN.
"""

import ipaddress
import json
import socket
import struct
import sys

PORT = 80
DEVICE = sys.argv[1]  # for link-local addresses


def attempt(address):
    try:
        return connect(address)
    except OSError:
        return send_syn(address)


def target(address):
    if address.version == 4:
        return (str(address), PORT)
    scope = socket.if_nametoindex(DEVICE) if address.is_link_local or address.is_multicast else 0
    return (str(address), PORT, 0, scope)


def connect(address):
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(1.0)
        if family == socket.AF_INET6:
            stream.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        stream.connect(target(address))
        stream.sendall(b"GET / HTTP/1.1\r\nHost: probe\r\n\r\n")
        return "answered" if stream.recv(4096).startswith(b"HTTP/1.1 200") else "connected"


def send_syn(address):
    syn = struct.pack("!HHIIBBHHH", 40000, PORT, 1, 0, 5 << 4, 2, 1024, 0, 0)
    if address.version == 4:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            raw.sendto(syn, (str(address), 0))
    else:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
            host, _, flow, scope = target(address)
            raw.sendto(syn, (host, 0, flow, scope))
    return "sent"


def result(address):
    try:
        return attempt(ipaddress.ip_address(address))
    except OSError as error:
        return "refused by the kernel: %s" % error


print(json.dumps({probe["name"]: result(probe["address"]) for probe in json.load(sys.stdin)}))
