"""Holding figures against what must be reached."""

from kvtransfer.bench.cases import KIB, MIB, SINGLE, Case
from kvtransfer.bench.figures import Figures
from kvtransfer.bench.targets import Verdict, is_held_to_targets, verdicts


def figures(rate: float, p50: float = 1.0) -> Figures:
    return Figures((rate,), p50, p50, 1.0)


def met(said: list[Verdict]) -> dict[str, bool]:
    return {verdict.text: verdict.met for verdict in said}


def test_batches_of_180_kib_to_2_mib_are_held_to_the_targets() -> None:
    held = [Case(180 * KIB, 64), Case(720 * KIB, 256), Case(2 * MIB, 1024)]
    others = [Case(64 * KIB, 1024), Case(4 * MIB, 64), Case(180 * KIB, 63), SINGLE]
    assert all(is_held_to_targets(case) for case in held)
    assert not any(is_held_to_targets(case) for case in others)


def test_speeds_are_compared_with_those_who_took_part() -> None:
    case = Case(180 * KIB, 64)
    by_name = {
        "memcpy": figures(10.0),
        "shm": figures(7.0),
        "shm + hash": figures(7.0),
        "mooncake engine": figures(1.6),
    }
    assert met(verdicts({case: by_name}, None)) == {
        "64 x 180 KiB: shm / memcpy": False,
        "64 x 180 KiB: shm + hash / memcpy": True,
        "64 x 180 KiB: shm + hash / mooncake engine": True,
    }


def test_a_single_block_is_compared_with_the_best_of_mooncake() -> None:
    by_name = {
        "shm + hash": figures(1.0, p50=0.06e-3),
        "tcp + hash": figures(1.0, p50=0.2e-3),
        "mooncake engine": figures(1.0, p50=0.3e-3),
        "mooncake engine, MC_TCP_PROTO=1": figures(1.0, p50=0.16e-3),
    }
    said = verdicts({SINGLE: by_name}, None)
    assert [(round(verdict.figure, 3), verdict.met) for verdict in said] == [(1.25, True), (0.06, False)]


def test_without_mooncake_nothing_is_said_of_it() -> None:
    by_name = {"tcp": figures(3.0), "tcp + hash": figures(3.0)}
    assert verdicts({SINGLE: by_name, Case(180 * KIB, 64): by_name}, None) == []


def test_control_calls_have_a_bound() -> None:
    assert [verdict.met for verdict in verdicts({}, 0.0049) + verdicts({}, 0.0051)] == [True, False]
