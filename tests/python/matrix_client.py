"""Checks the fake homeserver with matrix-nio: matrix_client.py URL TOKEN ROOM USER."""

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
    report = {"me": (await client.whoami()).user_id}
    report["limit"] = (await client.content_repository_config()).upload_size
    report["alias"] = (await client.room_resolve_alias("#room:fake.example")).room_id
    missing = await client.room_resolve_alias("#nowhere:fake.example")
    report["nowhere"] = missing.status_code

    uploaded = await upload(client, DATA, "отчёт.csv")
    assert isinstance(uploaded, UploadResponse), uploaded
    report["uri"] = uploaded.content_uri
    downloaded = await client.download(uploaded.content_uri)
    report["download"] = hashlib.sha256(downloaded.body).hexdigest()
    lost_file = await client.download("mxc://fake.example/never")
    assert isinstance(lost_file, DownloadError), lost_file
    report["gone"] = lost_file.status_code
    large = await upload(client, b"x" * 200_001, "large.csv")
    assert isinstance(large, UploadError), large
    report["large"] = large.status_code

    content = {"msgtype": "m.file", "body": "отчёт.csv", "url": uploaded.content_uri}
    first = await send(client, content, "once")
    again = await send(client, content, "once")
    assert isinstance(first, RoomSendResponse), first
    report["event"] = first.event_id
    report["same"] = first.event_id == again.event_id
    limited = await send(client, content, "limited")
    assert isinstance(limited, RoomSendError), limited
    report["limited"] = [limited.status_code, limited.retry_after_ms]
    refused = await send(client, content, "refused")
    report["refused"] = refused.status_code

    synced = await client.sync(timeout=0)
    assert isinstance(synced, SyncResponse), synced
    events = synced.rooms.join[ROOM].timeline.events
    files = [event for event in events if isinstance(event, RoomMessageFile)]
    texts = [event for event in events if isinstance(event, RoomMessageText)]
    report["files"] = [[event.sender, event.body, event.url] for event in files]
    report["texts"] = [[event.sender, event.body] for event in texts]
    page = await client.room_messages(ROOM, start=synced.next_batch, limit=1)
    assert isinstance(page, RoomMessagesResponse), page
    report["last"] = [event.event_id for event in page.chunk]
    silent = await client.sync(timeout=10, since=synced.next_batch)
    report["silence"] = len(silent.rooms.join)
    client.access_token = "wrong"
    report["token"] = (await client.whoami()).status_code
    await client.close()
    print(json.dumps(report))


asyncio.run(main())
