"""Drives the fake DIAL Core with the official client; argument: its URL."""

import sys

from aidial_client import Dial

client = Dial(api_key="k", base_url=sys.argv[1])

bucket = client.bucket.get_bucket()
assert bucket == "b", bucket

stored = client.files.upload("files/b/f/a b.txt", ("a b.txt", b"text", "text/plain"))
assert stored.content_length == 4 and stored.content_type == "text/plain", stored
assert client.files.download("files/b/f/a b.txt").get_content() == b"text"
first = client.metadata.get(resource="files", relative_url="files/b/f/", limit=1)
assert len(first.items) == 1 and first.next_token, first
second = client.metadata.get(
    resource="files", relative_url="files/b/f/", limit=1, token=first.next_token
)
assert [item.name for item in second.items] == ["z"] and not second.next_token, second
client.files.delete("files/b/f/a b.txt")

assert client.toolset.get("t").transport == "HTTP"
signed = client.client_channel.signin_toolsets(channel_id="c", toolset_ids=["t", "u"])
assert {key: value.value for key, value in signed.items()} == {"t": "success", "u": "error"}, signed

chunks = client.chat.completions.create(
    deployment_name="gpt", messages=[{"role": "user", "content": "?"}], stream=True, api_version="2025-01-01"
)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == "Hello", text
print('"ok"')
