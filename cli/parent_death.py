"""A program that a supervisor started ends with it, however the supervisor ends."""

import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "HALFMOON_PARENT_PID"
"""Set by the supervisor to its process id, for its children alone."""

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies. Does nothing where no supervisor started it.

    Call it before anything else: until then a parent's death goes unnoticed, which the last check here catches up.
    """
    expected = os.environ.pop(PARENT_VARIABLE, None)
    if expected is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(expected):
        sys.exit(1)
