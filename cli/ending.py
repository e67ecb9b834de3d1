"""How a program ends whose device may still compute."""

import logging
import os
import sys
import threading


def end_over(thread_name: str, status: int) -> int:
    """Returns `status`; where the thread `thread_name` still runs, ends the process with it here and now.

    A daemon thread inside a compiled step cannot be stopped. When it comes back while the interpreter shuts down, the
    process aborts: to be called after everything else has been closed, as nothing is cleaned up here but output.
    """
    if all(thread.name != thread_name for thread in threading.enumerate()):
        return status
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
