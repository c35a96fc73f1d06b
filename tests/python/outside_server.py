"""A web server for the `docker compose up` test: outside_server.py ADDRESS.

Prints `ready`, then the path of each request as it comes. Requests for `/held/...` are answered once a line was written
to its standard input; all others immediately. Ends with its standard input.
"""

import http.server
import sys
import threading

RELEASED = threading.Event()
OUTPUT = threading.Lock()


def show(line):
    with OUTPUT:
        print(line, flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        show(self.path)
        if self.path.startswith("/held/"):
            RELEASED.wait()
        body = f"This is {self.path}.\n".encode()
        self.send_response(200)
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


server = Server((sys.argv[1], 80), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
show("ready")
for _ in sys.stdin:
    RELEASED.set()
