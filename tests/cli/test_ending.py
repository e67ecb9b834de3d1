"""A program ends with its own status, whatever its device thread is doing."""

import subprocess
import sys

import pytest

from tests.cli.running import PATIENCE, ROOT

PROGRAM = """
import atexit, sys, threading, time
from cli.ending import end_over
atexit.register(print, "interpreter shut down")
threading.Thread(target=time.sleep, args=(float(sys.argv[1]),), name="engine", daemon=True).start()
time.sleep(0.1)
print("closed")
sys.exit(end_over("engine", 3))
"""


@pytest.mark.parametrize(
    ("step_seconds", "output"),
    [("0", "closed\ninterpreter shut down\n"), ("600", "closed\n")],
    ids=["idle", "in a step"],
)
def test_the_status_is_the_programs_and_the_interpreter_never_ends_under_a_step(step_seconds: str, output: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, step_seconds],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, output, "")
