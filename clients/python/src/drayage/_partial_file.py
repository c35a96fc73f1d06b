"""Files that appear at their path only when they are complete."""

from __future__ import annotations

import os
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
    It can be read by its owner only."""
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
