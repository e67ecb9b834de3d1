"""A folder that one process at a time works in."""

import fcntl
import os
import time
from pathlib import Path

from halfmoon.errors import ConfigError

_NAME = "in-use"
_POLL_SECONDS = 0.05


class FolderLock:
    """Held from when it is made until `close`, or until the process ends, however it ends."""

    def __init__(self, folder: Path, *, wait_seconds: float) -> None:
        """Makes the folder, with access for this user alone, if it is not there; waits until nobody else works in it.

        Raises ConfigError when the folder cannot be used, or is still in use in the end.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot keep KV pages in {folder}: {error.strerror}") from error
        deadline = time.monotonic() + wait_seconds
        while not self._try():
            if time.monotonic() >= deadline:
                self.close()
                raise ConfigError(f"{folder} is in use by another worker: each needs a folder of its own for KV pages")
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Lets others in; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
