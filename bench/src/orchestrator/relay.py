"""Relays chats to a model without changes, as a short script would without an orchestrator."""

import asyncio
import sys

from aiohttp import web
from openai import AsyncOpenAI


async def main(model: str) -> None:
    client = AsyncOpenAI(base_url=f"{model}/v1", api_key="none", max_retries=0)

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        stream = await client.chat.completions.create(
            model=body["model"], messages=body["messages"], stream=True
        )
        async for chunk in stream:
            await answer.write(b"data: " + chunk.model_dump_json(exclude_unset=True).encode() + b"\n\n")
        await answer.write(b"data: [DONE]\n\n")
        await answer.write_eof()
        return answer

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
