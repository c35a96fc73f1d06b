"""Files that appear at their path only when they are complete."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PREFIX = ".drayage-"
"""Beginning of the name of a partial file. The name of the target is not part of it: with more it could be too long."""


@contextmanager
def partial_file(target: Path) -> Iterator[BinaryIO]:
    """A file in the directory of `target`, which it replaces at the end of the block, and leaves as it was after an error.
    It can be read by its owner only. A link stays, and the file behind it is replaced."""
    target = _replaceable_file(target)
    # The same directory, because a rename is only atomic within one file system.
    descriptor, path = tempfile.mkstemp(prefix=PREFIX, dir=target.parent)
    try:
        # Windows neither renames nor removes an open file.
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(path, target)
    except BaseException:
        os.unlink(path)
        raise


def _replaceable_file(target: Path) -> Path:
    """The file to replace for a path: behind all links, even where it does not exist yet. Raises for a target that a file
    must not replace, such as a pipe or `/dev/null`."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        if not stat.S_ISREG(mode):
            raise FileExistsError(errno.EEXIST, "the target exists and is not a regular file", str(target))
    return Path(os.path.realpath(target))
