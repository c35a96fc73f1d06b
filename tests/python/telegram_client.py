"""A bot of python-telegram-bot that calls the fake server of the Bot API.

Usage: telegram_client.py BASE_URL TOKEN GROUP MOVED

Prints one JSON object with the values that the library read from the responses.
"""

import asyncio
import hashlib
import io
import json
import sys

from telegram import Bot, InputMediaDocument, InputMediaPhoto, InputMediaVideo, error
from telegram.request import HTTPXRequest

PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (64).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0tail"
)
MP4 = (
    b"\0\0\0\x18ftypisom\0\0\0\0isomavc1"
    b"\0\0\0\x20stsd\0\0\0\0\0\0\0\x01\0\0\0\x10avc1\0\0\0\0\0\0\0\0"
)
OPUS = (
    b"OggS\0\x02\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01\x13"
    b"OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0"
)
MP3 = b"ID3\x04\0\0\0\0\0\0\xff\xfb\x90\x64\0\0\0\0"
GIF = b"GIF89a\x10\0\x10\0\0\0\0\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0\x2c\0\0\0\0\x10\0\x10\0\0\x02\x02\x44\x01\0\x3b"


def named(data, name):
    """Bytes as an open file."""
    file = io.BytesIO(data)
    file.name = name
    return file


async def failure(call):
    """Type and text of the error that a call raises, or None."""
    try:
        await call
    except error.TelegramError as caught:
        report = {"type": type(caught).__name__, "text": str(caught)}
        if isinstance(caught, error.RetryAfter):
            wait = caught.retry_after
            report["after"] = wait.total_seconds() if hasattr(wait, "total_seconds") else wait
        if isinstance(caught, error.ChatMigrated):
            report["chat"] = caught.new_chat_id
        return report
    return None


async def sends(bot, group):
    """Calls every method that sends, and returns properties of the sent messages."""
    text = await bot.send_message(group, "hello", message_thread_id=7)
    edited = await bot.edit_message_text("changed", group, text.message_id)
    photo = await bot.send_photo(group, named(PNG, "p.png"), caption="a photo", has_spoiler=True)
    big = bytes(range(256)) * 4000
    document = await bot.send_document(
        group,
        named(big, "отчёт.bin"),
        reply_to_message_id=text.message_id,
        disable_content_type_detection=True,
    )
    again = await bot.send_document(group, document.document.file_id)
    audio = await bot.send_audio(group, named(MP3, "a.mp3"))
    voice = await bot.send_voice(group, named(OPUS, "a.ogg"))
    video = await bot.send_video(group, named(MP4, "a.mp4"))
    moving = await bot.send_animation(group, named(GIF, "a.gif"))
    album = await bot.send_media_group(
        group,
        [
            InputMediaPhoto(named(PNG, "1.png"), caption="an album"),
            InputMediaVideo(named(MP4, "2.mp4")),
        ],
    )
    return {
        "text": [text.text, text.is_topic_message, text.message_thread_id],
        "edited": edited.text,
        "photo": [photo.caption, len(photo.photo), photo.photo[-1].file_size],
        "document": [document.document.file_name, document.document.file_size],
        "reply": document.reply_to_message.message_id == text.message_id,
        "again": again.document.file_id == document.document.file_id,
        "audio": audio.audio.file_size,
        "voice": voice.voice.file_size,
        "video": video.video.file_size,
        "animation": moving.animation.file_size,
        "album": [message.message_id for message in album],
        "group": len({message.media_group_id for message in album}),
        "sha256": hashlib.sha256(big).hexdigest(),
        "action": await bot.send_chat_action(group, "upload_document"),
    }


async def failures(bot, group, moved):
    """The library's errors for refusals. The test scripts the first four in the fake server."""
    document = lambda: bot.send_document(group, named(b"x", "x.bin"))
    mixed = [
        InputMediaPhoto(named(PNG, "1.png")),
        InputMediaDocument(named(b"x", "x.bin")),
    ]
    return {
        "rate": await failure(document()),
        "blocked": await failure(document()),
        "broken": await failure(document()),
        "large": await failure(document()),
        "chat": await failure(bot.send_message(31337, "x")),
        "thread": await failure(bot.send_message(group, "x", message_thread_id=99)),
        "moved": await failure(bot.send_message(moved, "x")),
        "empty": await failure(bot.send_document(group, named(b"", "x.bin"))),
        "id": await failure(bot.send_document(group, "BQAC-unknown")),
        "dimensions": await failure(
            bot.send_photo(group, named(PNG.replace(b"\0\0\0@", b"\0\0\x27\x10", 1), "p.png"))
        ),
        "mixed": await failure(bot.send_media_group(group, mixed)),
        "caption": await failure(
            bot.send_document(group, named(b"x", "x.bin"), caption="x" * 1025)
        ),
    }


async def updates(bot):
    """Messages of users, and the bytes of their files."""
    found = []
    offset = None
    while batch := await bot.get_updates(offset=offset, timeout=0):
        for update in batch:
            message = update.message
            entry = {"text": message.text or message.caption, "sha256": None}
            if message.document:
                try:
                    file = await bot.get_file(message.document.file_id)
                    data = await file.download_as_bytearray()
                    entry["sha256"] = hashlib.sha256(data).hexdigest()
                except error.TelegramError as caught:
                    entry["refused"] = str(caught)
            found.append(entry)
            offset = update.update_id + 1
    return found


async def main():
    base, token, group, moved = sys.argv[1:]
    request = lambda: HTTPXRequest(http_version="1.1")
    make = lambda token: Bot(
        token,
        base_url=base + "/bot",
        base_file_url=base + "/file/bot",
        request=request(),
        get_updates_request=request(),
    )
    bot = make(token)
    await bot.initialize()
    report = {"me": bot.username}
    report["sends"] = await sends(bot, int(group))
    report["failures"] = await failures(bot, int(group), int(moved))
    report["updates"] = await updates(bot)
    await bot.set_webhook("https://bot.example/hook", secret_token="s")
    report["conflict"] = await failure(bot.get_updates(timeout=0))
    await bot.delete_webhook()
    report["silence"] = len(await bot.get_updates(timeout=0))
    report["token"] = await failure(make("4242:other").initialize())
    await bot.shutdown()
    print(json.dumps(report))


asyncio.run(main())
