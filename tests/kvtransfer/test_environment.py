"""The environment of a data-plane process."""

from kvtransfer.environment import plane_environment

COPY = "glibc.cpu.x86_non_temporal_threshold=131072"


def test_copies_are_told_to_pass_the_cache() -> None:
    assert plane_environment({"HOME": "/root"}) == {"HOME": "/root", "GLIBC_TUNABLES": COPY}


def test_other_tunables_stay() -> None:
    other = "glibc.malloc.check=1"
    assert plane_environment({"GLIBC_TUNABLES": other})["GLIBC_TUNABLES"] == f"{other}:{COPY}"


def test_a_setting_that_is_there_already_wins() -> None:
    own = {"GLIBC_TUNABLES": "glibc.cpu.x86_non_temporal_threshold=4194304"}
    assert plane_environment(own) == own
