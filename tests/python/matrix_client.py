"""Proves the fake homeserver with matrix-nio: matrix_client.py URL TOKEN ROOM USER."""

import asyncio
import hashlib
import io
import json
import sys

from nio import (
    AsyncClient,
    AsyncClientConfig,
    DownloadError,
    RoomMessageFile,
    RoomMessagesResponse,
    RoomMessageText,
    RoomSendError,
    RoomSendResponse,
    SyncResponse,
    UploadError,
    UploadResponse,
)

URL, TOKEN, ROOM, USER = sys.argv[1:5]
DATA = bytes(range(256)) * 40


async def upload(client, data, name):
    answer, _ = await client.upload(
        io.BytesIO(data), content_type="text/csv", filename=name, filesize=len(data)
    )
    return answer


async def send(client, content, transaction=None):
    return await client.room_send(ROOM, "m.room.message", content, tx_id=transaction)


async def main():
    config = AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0)
    client = AsyncClient(URL, config=config)
    client.restore_login(user_id="@bot:fake.example", device_id="FAKE", access_token=TOKEN)
    shown = {"me": (await client.whoami()).user_id}
    shown["limit"] = (await client.content_repository_config()).upload_size
    shown["alias"] = (await client.room_resolve_alias("#room:fake.example")).room_id
    missing = await client.room_resolve_alias("#nowhere:fake.example")
    shown["nowhere"] = missing.status_code

    uploaded = await upload(client, DATA, "отчёт.csv")
    assert isinstance(uploaded, UploadResponse), uploaded
    shown["uri"] = uploaded.content_uri
    got = await client.download(uploaded.content_uri)
    shown["download"] = hashlib.sha256(got.body).hexdigest()
    gone = await client.download("mxc://fake.example/never")
    assert isinstance(gone, DownloadError), gone
    shown["gone"] = gone.status_code
    large = await upload(client, b"x" * 200_001, "large.csv")
    assert isinstance(large, UploadError), large
    shown["large"] = large.status_code

    content = {"msgtype": "m.file", "body": "отчёт.csv", "url": uploaded.content_uri}
    first = await send(client, content, "once")
    again = await send(client, content, "once")
    assert isinstance(first, RoomSendResponse), first
    shown["event"] = first.event_id
    shown["same"] = first.event_id == again.event_id
    limited = await send(client, content, "limited")
    assert isinstance(limited, RoomSendError), limited
    shown["limited"] = [limited.status_code, limited.retry_after_ms]
    refused = await send(client, content, "refused")
    shown["refused"] = refused.status_code

    told = await client.sync(timeout=0)
    assert isinstance(told, SyncResponse), told
    events = told.rooms.join[ROOM].timeline.events
    files = [event for event in events if isinstance(event, RoomMessageFile)]
    texts = [event for event in events if isinstance(event, RoomMessageText)]
    shown["files"] = [[event.sender, event.body, event.url] for event in files]
    shown["texts"] = [[event.sender, event.body] for event in texts]
    page = await client.room_messages(ROOM, start=told.next_batch, limit=1)
    assert isinstance(page, RoomMessagesResponse), page
    shown["last"] = [event.event_id for event in page.chunk]
    silent = await client.sync(timeout=10, since=told.next_batch)
    shown["silence"] = len(silent.rooms.join)
    client.access_token = "wrong"
    shown["token"] = (await client.whoami()).status_code
    await client.close()
    print(json.dumps(shown))


asyncio.run(main())
