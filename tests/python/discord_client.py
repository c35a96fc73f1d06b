"""A bot of discord.py that calls the fake server of the API.

Usage: discord_client.py BASE_URL TOKEN CHANNEL

Prints one JSON object with the values that the library read from the responses.
"""

import asyncio
import io
import json
import sys

import discord
from discord.http import Route


async def failure(call):
    """The code of the error that a call raises, or None."""
    try:
        await call
    except discord.HTTPException as caught:
        return caught.code
    return None


async def main(base_url, token, channel):
    Route.BASE = base_url
    client = discord.Client(intents=discord.Intents.none())
    await client.login(token)
    target = client.get_partial_messageable(int(channel))
    content = bytes(range(256)) * 400
    files = [
        discord.File(io.BytesIO(content), "отчёт.bin"),
        discord.File(io.BytesIO(b"small"), "b.txt"),
    ]
    message = await target.send("two files", files=files, nonce="n-1")
    report = {
        "id": str(message.id),
        "text": message.content,
        "sizes": [attachment.size for attachment in message.attachments],
        "names": [attachment.filename for attachment in message.attachments],
    }
    answer = await target.send("hello", reference=message.to_reference())
    report["answer"] = answer.content
    report["channel"] = await failure(client.get_partial_messageable(404).send("x"))
    report["empty"] = await failure(target.send(""))
    report["servers"] = [server.name async for server in client.fetch_guilds(with_counts=False)]
    await client.close()
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
