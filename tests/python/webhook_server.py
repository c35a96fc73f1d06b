"""A receiver of webhooks with aiohttp: webhook_server.py SECRET. Prints its port, then each event that it accepts."""

import asyncio
import hashlib
import hmac
import json
import sys

from aiohttp import web

SECRET = sys.argv[1].encode()
RECEIVED_IDS = {}


def show(value):
    print(json.dumps(value), flush=True)


def verify(request, body):
    timestamp = request.headers["X-Timestamp"]
    expected = hmac.new(SECRET, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest("sha256=" + expected, request.headers["X-Signature-256"])


async def receive_event(request):
    files = []
    if request.content_type == "application/json":
        event = await request.read()
    else:
        event = None
        async for part in await request.multipart():
            if part.name == "event":
                event = bytes(await part.read())
                continue
            digest, size = hashlib.sha256(), 0
            while chunk := await part.read_chunk():
                digest.update(chunk)
                size += len(chunk)
            files.append([part.filename, part.headers["Content-Type"], size, digest.hexdigest()])
    if not verify(request, event):
        return web.json_response({"error": "signature"}, status=401)
    key = request.headers["Idempotency-Key"]
    if key in RECEIVED_IDS:
        return web.json_response({"id": RECEIVED_IDS[key]}, status=409)
    RECEIVED_IDS[key] = f"taken-{len(RECEIVED_IDS)}"
    show({"event": json.loads(event), "files": files})
    return web.json_response({"id": RECEIVED_IDS[key]}, status=201)


async def main():
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/", receive_event)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    show(site._server.sockets[0].getsockname()[1])
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


asyncio.run(main())
