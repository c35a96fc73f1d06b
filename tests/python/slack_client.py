"""An app of slack_sdk that calls the fake server of the Web API.

Usage: slack_client.py BASE_URL TOKEN CHANNEL

Prints one JSON object with the values that the library read from the responses.
"""

import json
import sys

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError


def failure(call):
    """The code of the error that a call raises, or None."""
    try:
        call()
    except SlackApiError as caught:
        return caught.response["error"]
    return None


def main(base_url, token, channel):
    client = WebClient(token=token, base_url=base_url + "/")
    content = bytes(range(256)) * 400
    identity = client.auth_test()
    report = {"team": identity["team_id"], "scopes": identity.headers["x-oauth-scopes"]}
    uploaded = client.files_upload_v2(
        channel=channel, filename="отчёт.bin", content=content, initial_comment="a <file>"
    )
    report["uploaded"] = uploaded["ok"]
    info = client.files_info(file=uploaded["files"][0]["id"])
    report["size"] = info["file"]["size"]
    report["shared"] = list(info["file"]["shares"]["public"])
    message = client.chat_postMessage(channel=channel, text="hello", thread_ts="1.2")
    report["ts"] = message["ts"]
    report["channel"] = failure(lambda: client.chat_postMessage(channel="C404", text="x"))
    wrong = WebClient(token="xoxb-wrong", base_url=base_url + "/")
    report["token"] = failure(wrong.auth_test)
    print(json.dumps(report))


main(*sys.argv[1:])
