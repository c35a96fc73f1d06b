"""Writes files of a sandbox under exact paths, for frameworks that name files by absolute paths."""

from __future__ import annotations

import uuid

MOVE_SCRIPT = """
LC_ALL=C; export LC_ALL
if [ -d "$2" ]; then error=is_directory
elif mkdir -p -- "${2%/*}/" && cat -- "$1" >"$2"; then error=
else error=failed; fi
rm -f -- "$1"
[ -z "$error" ] || { echo "$error"; exit 1; }
"""
"""Moves the content of the file `$1` to the path `$2`, and creates the directories above it. A link stays a link and a file
keeps its mode, as with every other program that writes; a name may have any form. Its messages are read, so they are in
English in every sandbox."""


def staged_name() -> str:
    """A unique name for a file until it is moved to its path."""
    return f"staged-{uuid.uuid4().hex}"


def move_error(stdout: bytes, stderr: bytes) -> str:
    """The error of a script that failed: `is_directory`, `permission_denied`, `invalid_path`, or the message."""
    message = stderr.decode(errors="replace").strip()
    if "Permission denied" in message:
        return "permission_denied"
    if "Not a directory" in message or "File exists" in message:
        return "invalid_path"
    return message or stdout.decode(errors="replace").strip() or "the file was not written"
