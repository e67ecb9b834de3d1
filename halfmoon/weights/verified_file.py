"""Files whose content is pinned by size and SHA-256, hashed once and remembered by a stamp beside them."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Pin:
    """The content a file must have: `size` in bytes and `sha256` in lower-case hex."""

    size: int
    sha256: str


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in lower-case hex; raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_intact(path: Path, pin: Pin) -> bool:
    """True when `path` has the pinned content. It is hashed only when no stamp vouches for its size and change time."""
    try:
        state = path.stat()
        if state.st_size != pin.size:
            return False
        expected = _stamp_text(state, pin)
        if _read_stamp(path) == expected:
            return True
        if sha256_of(path) != pin.sha256:
            return False
    except FileNotFoundError:
        return False
    # A folder that cannot be written (an image, a shared mount) merely costs the hash again next time.
    with contextlib.suppress(OSError):
        _stamp_of(path).write_text(expected)
    return True


def copy_pinned(source: IO[bytes], target: Path, pin: Pin, advance: Callable[[int], None]) -> bool:
    """Copy `source` to `target` in one step that either happens whole or not at all.

    `advance` gets the bytes copied so far. Returns False, and leaves `target` alone, when the content is not the
    pinned one. Raises OSError when the disk is full or cannot be written.
    """
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            digest, size = hashlib.sha256(), 0
            while chunk := source.read(CHUNK):
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                advance(size)
            file.flush()
            os.fsync(file.fileno())
        if size != pin.size or digest.hexdigest() != pin.sha256:
            return False
        partial.replace(target)
        _stamp_of(target).write_text(_stamp_text(target.stat(), pin))
        return True
    finally:
        partial.unlink(missing_ok=True)


def _stamp_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _read_stamp(path: Path) -> str | None:
    try:
        return _stamp_of(path).read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _stamp_text(state: os.stat_result, pin: Pin) -> str:
    return json.dumps({"size": state.st_size, "mtime_ns": state.st_mtime_ns, "sha256": pin.sha256})
