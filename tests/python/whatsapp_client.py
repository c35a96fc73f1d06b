"""A phone number of pywa that calls the fake server of the Cloud API.

Usage: whatsapp_client.py BASE_URL TOKEN NUMBER PERSON MEDIA

Prints one JSON object with the values that the library read from the responses.
"""

import json
import sys

import httpx
from pywa import WhatsApp
from pywa.errors import WhatsAppError


def failure(call):
    """The code of the error that a call raises, or None."""
    try:
        call()
    except WhatsAppError as caught:
        return caught.code
    return None


def main(base_url, token, number, person, media):
    session = httpx.Client()
    client = WhatsApp(phone_id=number, token=token, session=session)
    session.base_url = base_url
    content = bytes(range(256)) * 400
    report = {}
    sent = client.send_document(
        person, content, filename="отчёт.bin", caption="a file", mime_type="application/octet-stream"
    )
    report["document"] = sent.id
    report["text"] = client.send_message(person, "hello").id
    found = client.get_media_url(media)
    report["size"] = found.file_size
    report["person"] = failure(lambda: client.send_message("404", "x"))
    print(json.dumps(report))


main(*sys.argv[1:])
