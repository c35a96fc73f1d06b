"""A bot of discord.py that receives events from the fake gateway.

Usage: discord_gateway.py BASE_URL TOKEN CHANNEL

Receives three messages with their files, writes into CHANNEL after the second, and prints one JSON object with the
values that the library read.
"""

import asyncio
import json
import sys

# The fake gateway compresses with zlib alone, and discord.py prefers Zstandard when another package has installed it.
sys.modules["zstandard"] = None

import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route


class Bot(discord.Client):
    """Records the messages that arrive."""

    def __init__(self, channel):
        super().__init__(intents=discord.Intents(guilds=True, messages=True, message_content=True))
        self.channel = channel
        self.messages = []
        self.resumed = 0
        self.read = 0

    async def on_resumed(self):
        self.resumed += 1
        await self.end()

    async def end(self):
        if self.read == 3 and self.resumed:
            await self.close()

    async def on_message(self, message):
        files = []
        # The message is added before the files are read, so that the order is that of the events.
        self.messages.append([str(message.channel.id), message.content, str(message.author.id), files])
        for attachment in message.attachments:
            files += [attachment.filename, (await attachment.read()).decode()]
        self.read += 1
        if self.read == 2:
            await self.get_channel(int(self.channel)).send("two came")
        await self.end()


async def main(base_url, token, channel):
    Route.BASE = base_url
    client = Bot(channel)
    await client.login(token)
    _, url, limit = await client.http.get_bot_gateway()
    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(url)
    await client.connect()
    await client.http.close()
    again = Bot(channel)
    await again.login(token)
    raw = await again.http.logs_from(int(channel), limit=10)
    history = [message["content"] for message in raw]
    await again.close()
    print(
        json.dumps(
            {
                "limit": limit["remaining"],
                "messages": client.messages,
                "resumed": client.resumed,
                "history": history,
            }
        )
    )


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
