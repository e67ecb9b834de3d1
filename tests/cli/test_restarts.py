"""When a program is started again."""

from cli.supervise.restarts import RestartHistory, RestartPolicy

POLICY = RestartPolicy(first_delay=0.5, growth=2.0, longest_delay=4.0, healthy_after=60.0, attempts=3)


def test_delays_double_up_to_the_longest() -> None:
    history = RestartHistory(POLICY)
    history.ready()
    assert [history.died(1.0) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_a_long_healthy_run_starts_over_with_the_first_delay() -> None:
    history = RestartHistory(POLICY)
    history.ready()
    assert [history.died(1.0), history.died(1.0), history.died(61.0), history.died(1.0)] == [0.5, 1.0, 0.5, 1.0]


def test_gives_up_on_a_program_that_was_never_ready() -> None:
    history = RestartHistory(POLICY)
    assert [history.died(1.0) for _ in range(3)] == [0.5, 1.0, None]


def test_never_gives_up_on_a_program_that_was_ready_once() -> None:
    history = RestartHistory(POLICY)
    history.died(1.0)
    history.ready()
    assert None not in [history.died(1.0) for _ in range(2000)]
