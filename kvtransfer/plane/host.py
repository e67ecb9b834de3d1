"""What the process needs to know of its machine, and how it dies with its parent."""

import ctypes
import os
import signal
from functools import cache
from pathlib import Path

_PR_SET_PDEATHSIG = 1


@cache
def boot_id() -> str:
    """Equal for two processes on the same machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def die_with_parent(parent: int) -> None:
    """The kernel sends SIGTERM to this process when the one that started it ends; at once if it has ended already.

    Raises OSError when the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
