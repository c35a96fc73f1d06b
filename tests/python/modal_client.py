"""Calls the fake Modal server with the provider's own client.

Usage: modal_client.py SANDBOX_ID DIRECTORY

The server and the token come from the environment. Prints one JSON object with the values that the client read.
"""

import hashlib
import json
import sys

import modal


def failure(call):
    """The type of the exception that a call raises, or None."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return type(error).__name__
    return None


def main():
    sandbox_id, directory = sys.argv[1:]
    sandbox = modal.Sandbox.from_id(sandbox_id)
    files = sandbox.filesystem
    echo = sandbox.exec("sh", "-c", "cat; echo problem >&2; exit 3", text=False)
    echo.stdin.write(b"\0\xff in")
    echo.stdin.write_eof()
    echo.stdin.drain()
    out = echo.stdout.read()
    problem = echo.stderr.read()
    status = echo.wait()
    content = bytes(range(256)) * 4096
    written = f"{directory}/new/written.bin"
    files.write_bytes(content, written)
    ours = files.read_bytes(f"{directory}/ours.bin")
    listed = files.list_files(directory)
    link = files.stat(f"{directory}/link")
    files.make_directory(f"{directory}/made/deep")
    files.remove(f"{directory}/made", recursive=True)
    print(
        json.dumps(
            {
                "out": out.hex(),
                "problem": problem.decode(),
                "status": status,
                "written": hashlib.sha256(files.read_bytes(written)).hexdigest(),
                "ours": hashlib.sha256(ours).hexdigest(),
                "listed": sorted([entry.name, entry.type.value] for entry in listed),
                "link": [link.type.value, link.symlink_target],
                "missing": failure(lambda: files.read_bytes(f"{directory}/missing")),
                "directory": failure(lambda: files.read_bytes(directory)),
                "not_directory": failure(lambda: files.list_files(f"{directory}/ours.bin")),
            }
        )
    )


main()
