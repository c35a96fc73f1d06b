"""Uploads a file with `tuspy`, stops in the middle, and continues in a second client. Prints the results as JSON.

    python tus_client.py URL FILE
"""

import json
import os
import sys

from tusclient import client

PART_BYTES = 1_000_000


def main(url, path):
    metadata = {"filename": os.path.basename(path)}
    first = client.TusClient(url).uploader(path, chunk_size=PART_BYTES, metadata=metadata, retries=3)
    for _ in range(2):
        first.upload_chunk()
    # Knows only the URL of the upload, as after a restart.
    second = client.TusClient(url).uploader(path, chunk_size=PART_BYTES, url=first.url, retries=3)
    report = {"continued_at": second.offset, "url": first.url}
    second.upload()
    print(json.dumps({**report, "offset": second.offset}))


main(*sys.argv[1:])
