"""Calls the fake E2B server with the vendor's client, and prints the client's results as JSON."""

import json
import sys

from e2b import Sandbox
from e2b.exceptions import AuthenticationException, SandboxException
from e2b.sandbox.commands.command_handle import CommandExitException

url, key, box, directory = sys.argv[1:]


def options(box=box, key=key):
    headers = {"E2b-Sandbox-Id": box, "E2b-Sandbox-Port": "49983"}
    return {"api_key": key, "api_url": url, "sandbox_url": url, "headers": headers}


def failure(call):
    try:
        call()
    except (SandboxException, AuthenticationException) as error:
        return type(error).__name__
    return None


sandbox = Sandbox.connect(box, timeout=600, **options())
files = sandbox.files
path = f"{directory}/отчёт 1.csv"
written = files.write(path, "1,2\n")
many = files.write_files(
    [
        {"path": f"{directory}/many/a", "data": b"\x00\xff"},
        {"path": f"{directory}/many/b", "data": b""},
    ]
)
moved = files.rename(path, f"{directory}/new/moved.csv")
made = [files.make_dir(f"{directory}/made"), files.make_dir(f"{directory}/made")]
listed = [[entry.name, entry.type.value] for entry in files.list(directory)]
info = files.get_info(f"{directory}/new/moved.csv")
ran = sandbox.commands.run("printf 'out \\377'; echo err >&2")
try:
    sandbox.commands.run("echo last; exit 3")
    exit_code = None
except CommandExitException as error:
    exit_code = [error.exit_code, error.stdout]
files.remove(f"{directory}/made")
print(
    json.dumps(
        {
            "written": [written.name, written.path],
            "many": [entry.path for entry in many],
            "moved": [moved.name, moved.path],
            "made": made,
            "listed": listed,
            "info": [info.name, info.type.value, info.size],
            "bytes": list(files.read(f"{directory}/many/a", format="bytes")),
            "empty": files.read(f"{directory}/many/b"),
            "text": files.read(f"{directory}/new/moved.csv"),
            "exists": [files.exists(f"{directory}/made"), files.exists(directory)],
            "ran": [ran.exit_code, ran.stdout, ran.stderr],
            "exit": exit_code,
            "running": sandbox.is_running(),
            "timeout": sandbox.set_timeout(1200),
            "id": sandbox.get_info().sandbox_id,
            "failures": {
                "missing": failure(lambda: files.read(f"{directory}/missing")),
                "directory": failure(lambda: files.read(directory)),
                "move": failure(lambda: files.rename(f"{directory}/missing", path)),
                "key": failure(lambda: Sandbox.connect(box, **options(key="e2b_wrong"))),
                "box": failure(lambda: Sandbox.connect("inever", **options(box="inever"))),
            },
        }
    )
)
