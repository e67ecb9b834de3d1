"""One program by itself: real signals to real processes."""

import signal

import pytest

from cli.preflight.ports import free_ports
from tests.cli.running import running

PROGRAM = ["tests.cli.fake_loop"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_the_program_and_it_exits_with_zero(number: signal.Signals) -> None:
    with running(PROGRAM) as started:
        started.wait_for("serving")
        started.process.send_signal(number)
        assert started.wait() == 0
        assert "drained" in started.output


def test_a_second_ctrl_c_does_not_wait_for_the_drain() -> None:
    with running([*PROGRAM, "60"]) as started:
        started.wait_for("serving")
        started.process.send_signal(signal.SIGINT)
        started.wait_for("draining")
        started.process.send_signal(signal.SIGINT)
        assert started.wait() == 130
        assert "drained" not in started.output


def test_a_gateway_runs_by_itself_and_ends_on_sigterm() -> None:
    gateway, router = map(str, free_ports(2))
    with running(["cli.main", "gateway", "--port", gateway, "--router", f"127.0.0.1:{router}"]) as started:
        started.wait_for(f"serving.*port={gateway}")
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0


def test_a_gateway_whose_port_is_taken_says_so_in_one_line() -> None:
    gateway, router = map(str, free_ports(2))
    command = ["cli.main", "gateway", "--port", gateway, "--router", f"127.0.0.1:{router}"]
    with running(command) as first:
        first.wait_for("serving")
        with running(command) as second:
            assert second.wait() == 1
            assert second.output.startswith(f"halfmoon: cannot listen on 127.0.0.1:{gateway}")
            assert len(second.output.splitlines()) == 1
