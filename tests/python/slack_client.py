"""An app by slack_sdk, which talks to the fake server of the Web API.

Usage: slack_client.py BASE_URL TOKEN CHANNEL

Prints one JSON object with what the library understood of the answers.
"""

import json
import sys

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError


def failure(call):
    """The word of a refusal."""
    try:
        call()
    except SlackApiError as caught:
        return caught.response["error"]
    return None


def main(base_url, token, channel):
    client = WebClient(token=token, base_url=base_url + "/")
    content = bytes(range(256)) * 400
    identity = client.auth_test()
    shown = {"team": identity["team_id"], "scopes": identity.headers["x-oauth-scopes"]}
    uploaded = client.files_upload_v2(
        channel=channel, filename="отчёт.bin", content=content, initial_comment="a <file>"
    )
    shown["uploaded"] = uploaded["ok"]
    info = client.files_info(file=uploaded["files"][0]["id"])
    shown["size"] = info["file"]["size"]
    shown["shared"] = list(info["file"]["shares"]["public"])
    message = client.chat_postMessage(channel=channel, text="hello", thread_ts="1.2")
    shown["ts"] = message["ts"]
    shown["channel"] = failure(lambda: client.chat_postMessage(channel="C404", text="x"))
    wrong = WebClient(token="xoxb-wrong", base_url=base_url + "/")
    shown["token"] = failure(wrong.auth_test)
    print(json.dumps(shown))


main(*sys.argv[1:])
