"""The supervisor as a process of its own, over real child processes."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.cli.running import Running, running, until


@contextmanager
def fleet(*programs: str, start: float = 20.0, drain: float = 10.0) -> Iterator[Running]:
    """A supervisor over fake programs with these flags."""
    flags = ["--start", str(start), "--drain", str(drain)]
    # A string of flags would be taken for a flag of the fleet's own without the blank in front.
    with running(["tests.cli.fake_fleet", *flags, "--", *(f" {flags}" for flags in programs)]) as started:
        yield started


def pids(started: Running) -> list[int]:
    """Process ids that the programs have printed."""
    return [int(pid) for pid in re.findall(r"(?:pid|child) (\d+)", started.output)]


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_output_of_each_program_carries_its_name() -> None:
    with fleet("", "", "") as started:
        started.wait_for("READY")
        assert re.search(r"^gateway +\| pid \d+$", started.output, re.MULTILINE)
        assert re.search(r"^worker-0 +\| pid \d+$", started.output, re.MULTILINE)


def test_sigterm_drains_tier_by_tier_and_exits_with_zero() -> None:
    with fleet("--drain-takes 0.3", "--drain-takes 0.3", "", "") as started:
        started.wait_for("READY")
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0
        events = re.findall(r"^(gateway|router|worker)\S* +\| (drains|has drained)", started.output, re.MULTILINE)
        assert events[:4] == [
            ("gateway", "drains"),
            ("gateway", "has drained"),
            ("router", "drains"),
            ("router", "has drained"),
        ]
        assert [name for name, _ in events[4:]] == ["worker"] * 4
        assert not any(map(alive, pids(started)))


def test_ctrl_c_drains_too() -> None:
    with fleet("", "") as started:
        started.wait_for("READY")
        started.process.send_signal(signal.SIGINT)
        assert started.wait() == 0
        assert "all programs have ended" in started.output


def test_second_ctrl_c_ends_everything_at_once() -> None:
    with fleet("--ignore-sigterm", "", drain=60.0) as started:
        started.wait_for("READY")
        started.process.send_signal(signal.SIGINT)
        started.wait_for("draining")
        started.process.send_signal(signal.SIGINT)
        assert started.wait() == 130
        assert not any(map(alive, pids(started)))


def test_what_a_program_started_cleans_up_after_a_second_ctrl_c(tmp_path: Path) -> None:
    file = tmp_path / "socket"
    with fleet("--ignore-sigterm", "", f"--with-tidy-child {file}", drain=60.0) as started:
        started.wait_for("READY")
        started.wait_for("child has its file")
        started.process.send_signal(signal.SIGINT)
        started.wait_for("draining")
        started.process.send_signal(signal.SIGINT)
        assert started.wait() == 130
    assert not file.exists()


def test_drain_is_bounded() -> None:
    with fleet("--ignore-sigterm", "", drain=0.5) as started:
        started.wait_for("READY")
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0
        assert "did not end in time and are ended now: gateway" in started.output
        assert not any(map(alive, pids(started)))


def test_programs_that_are_not_ready_have_nothing_to_drain() -> None:
    with fleet("", "--never-ready --ignore-sigterm", drain=60.0) as started:
        started.wait_for("gateway is ready")
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0
        assert not any(map(alive, pids(started)))


def test_program_that_is_killed_is_started_again_and_said_so() -> None:
    with fleet("", "", "") as started:
        started.wait_for("READY")
        (victim,) = started.wait_for(r"worker-0 +\| pid (\d+)")
        psutil.Process(int(victim)).kill()
        started.wait_for(r"worker-0 was ended by SIGKILL; starting it again in 0.1 s")
        started.wait_for(r"worker-0 is ready after", times=2)
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0


def test_delays_between_restarts_grow() -> None:
    with fleet("", "--die-after 0.8") as started:
        delays = started.wait_for(r"router ended with status 3; starting it again in (\S+) s", times=3)
        assert delays[:3] == ["0.1", "0.2", "0.4"]


def test_program_that_never_comes_up_ends_everything_with_an_error() -> None:
    with fleet("", "--die-after 0 --status 7") as started:
        assert started.wait() == 1
        assert "error: router ended with status 7, 3 times before it was ready; giving up" in started.output
        assert not any(map(alive, pids(started)))


def test_start_is_bounded() -> None:
    with fleet("", "--never-ready", start=1.0) as started:
        assert started.wait() == 1
        assert "error: not ready within 1 s: router" in started.output


def test_nothing_outlives_a_supervisor_that_is_killed() -> None:
    with fleet("", "", "") as started:
        started.wait_for("READY")
        started.process.kill()
        until(lambda: not any(map(alive, pids(started))), "the programs to end")


def test_what_a_program_started_itself_ends_with_it() -> None:
    with fleet("", "--with-child") as started:
        started.wait_for("READY")
        (child,) = started.wait_for(r"child (\d+)")
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0
        assert not alive(int(child))
