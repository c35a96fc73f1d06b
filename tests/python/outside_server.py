"""A web server of the outside network: outside_server.py ADDRESS [NAME_SERVER_ADDRESS NAME...].

Prints `ready`, then the path of each request when it arrives. Requests for `/held/...` get a response after a line was
written to standard input; all others immediately. The program ends when its standard input closes. With a second
address it is also the name server there: ADDRESS is the address of every NAME, and no other name exists. Paths below
`/files/` are the files of the directory in the variable OUTSIDE_FILES, where it is set.
"""

import http.server
import os
import pathlib
import socket
import socketserver
import sys
import threading

RELEASED = threading.Event()
OUTPUT = threading.Lock()
FILES = os.environ.get("OUTSIDE_FILES")


def show(line):
    with OUTPUT:
        print(line, flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        show(self.path)
        if self.path.startswith("/held/"):
            RELEASED.wait()
        body = f"This is {self.path}.\n".encode()
        status = 200
        if FILES and self.path.startswith("/files/"):
            file = pathlib.Path(FILES, self.path.removeprefix("/files/"))
            status = 200 if file.is_file() else 404
            body = file.read_bytes() if file.is_file() else b""
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        # A client that is killed closes its connection.
        pass


class NameHandler(socketserver.BaseRequestHandler):
    def handle(self):
        query, reply = self.request
        labels, end = [], 12
        while query[end]:
            labels.append(query[end + 1 : end + 1 + query[end]])
            end += 1 + query[end]
        question = query[12 : end + 5]
        is_known = b".".join(labels).lower().decode() in sys.argv[3:]
        # RFC 1035: a record of type A with the name of the question, or none; code 3 for a name that does not exist.
        records = b""
        if is_known and question[-4:-2] == b"\0\1":
            records = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(sys.argv[1])
        counts = bytes([0, 1, 0, bool(records), 0, 0, 0, 0])
        flags = b"\x81\x80" if is_known else b"\x81\x83"
        reply.sendto(query[:2] + flags + counts + question + records, self.client_address)


if len(sys.argv) > 2:
    names = socketserver.UDPServer((sys.argv[2], 53), NameHandler)
    threading.Thread(target=names.serve_forever, daemon=True).start()
server = Server((sys.argv[1], 80), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
show("ready")
for _ in sys.stdin:
    RELEASED.set()
