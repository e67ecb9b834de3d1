"""The states of a pull."""

import pytest

from halfmoon.errors import InternalError
from kvtransfer.core.transfer import Transfer, TransferState


def transfer(*wanted: int) -> Transfer:
    return Transfer(frozenset(wanted), pending_deadline=3.0, deadline=60.0)


def test_a_transfer_is_complete_when_every_block_is_verified() -> None:
    pull = transfer(0, 2)
    pull.begin()
    pull.mark_verified(2)
    with pytest.raises(InternalError, match="1 blocks missing"):
        pull.complete()
    pull.mark_verified(0)
    pull.complete()
    assert (pull.state, pull.ended) == (TransferState.COMPLETE, True)


def test_each_non_final_state_has_a_deadline() -> None:
    pull = transfer()
    assert pull.state_deadline == 3.0
    pull.begin()
    assert pull.state_deadline == 60.0
    pull.run_out()
    assert (pull.state, pull.reason) == (TransferState.FAILED, "TRANSFERRING until its deadline")
    assert pull.state_deadline == float("inf")


def test_pending_never_outlives_the_whole_transfer() -> None:
    assert Transfer(frozenset(), pending_deadline=3.0, deadline=1.0).state_deadline == 1.0


@pytest.mark.parametrize("block", [0, 5])
def test_a_block_is_verified_once_and_only_if_wanted(block: int) -> None:
    pull = transfer(0, 1)
    pull.begin()
    pull.mark_verified(0)
    with pytest.raises(InternalError):
        pull.mark_verified(block)


def test_nothing_happens_before_the_owner_has_answered() -> None:
    pull = transfer(0)
    with pytest.raises(InternalError):
        pull.mark_verified(0)
    with pytest.raises(InternalError):
        pull.complete()


def test_the_first_end_stands() -> None:
    pull = transfer()
    pull.cancel()
    pull.fail("late")
    pull.run_out()
    assert (pull.state, pull.reason) == (TransferState.CANCELLED, "cancelled")
    with pytest.raises(InternalError):
        pull.begin()
