"""A bot of discord.py that asks a question with buttons through the fake server.

Usage: discord_buttons.py BASE_URL TOKEN CHANNEL

Handles one press, and prints one JSON object with the values that the library read.
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
    """Asks once it is connected."""

    def __init__(self, channel):
        super().__init__(intents=discord.Intents(guilds=True, messages=True, message_content=True))
        self.channel = channel
        self.presses = []
        self.again = None

    async def on_ready(self):
        view = discord.ui.View(timeout=None)
        for label, data in [("Approve", "dray:1:y"), ("Refuse", "dray:1:n")]:
            button = discord.ui.Button(label=label, custom_id=data)
            button.callback = self.handle_press
            view.add_item(button)
        # The view is added before the message is sent, because a press can arrive before the response to the message.
        self.add_view(view)
        await self.get_channel(int(self.channel)).send("May I?", view=view)

    async def handle_press(self, press):
        self.presses.append(
            [
                press.data["custom_id"],
                str(press.user.id),
                press.user.global_name,
                str(press.channel.id),
                str(press.message.id),
                press.type.name,
            ]
        )
        await press.response.defer()
        # Otherwise the library itself would refuse a second response, and the server would not get it.
        press.response._response_type = None
        try:
            await press.response.defer()
        except discord.HTTPException as caught:
            self.again = caught.code
        await press.followup.send("only for you", ephemeral=True)
        await press.message.edit(content="done", view=None)
        await self.close()


async def main(base_url, token, channel):
    Route.BASE = base_url
    client = Bot(channel)
    await client.login(token)
    _, url, _ = await client.http.get_bot_gateway()
    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(url)
    await client.connect()
    print(json.dumps({"presses": client.presses, "again": client.again}))


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
