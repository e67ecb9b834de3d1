"""The life of handles, and when their blocks may be used again."""

import pytest

from halfmoon.errors import InvalidRequestError, LeaseExpiredError
from kvtransfer.core.handle import Handle, HandleState
from kvtransfer.core.handle_table import HandleTable
from kvtransfer.proofs import handle_tag

ID = bytes(range(16))
LEASE, GRACE, TIMEOUT = 30.0, 6.0, 100.0


class Desk:
    """A table, with what it told the outside."""

    def __init__(self) -> None:
        self.freed: list[tuple[int, ...]] = []
        self.changes: list[HandleState] = []
        self.table = HandleTable(lease=LEASE, grace=GRACE, on_change=self._changed, on_free=self._freed)

    def offer(self, handle_id: bytes = ID, blocks: tuple[int, ...] = (4, 5)) -> Handle:
        return self.table.offer(handle_id, "request", blocks, expires=TIMEOUT)

    def sealed(self, now: float = 0.0) -> Handle:
        handle = self.offer()
        self.table.publish(ID, 0, [11, 12], now)
        self.table.seal(ID, b"seal", now)
        return handle

    def _changed(self, handle: Handle) -> None:
        self.changes.append(handle.state)

    def _freed(self, handle: Handle) -> None:
        self.freed.append(handle.blocks)
        self.table.check()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def refused() -> None:
    """A read that is refused has nobody to tell here."""


def test_blocks_are_published_in_order_then_sealed_then_released(desk: Desk) -> None:
    handle = desk.offer()
    assert desk.table.publish(ID, 0, [11], 1.0) == 1
    assert handle.published == {4}
    assert desk.table.publish(ID, 1, [12], 2.0) == 2
    desk.table.seal(ID, b"seal", 3.0)
    assert (handle.state, handle.seal, handle.expires) == (HandleState.SEALED, b"seal", 33.0)
    assert (desk.table.open_count, desk.table.lease_count) == (1, 1)
    assert desk.table.release(ID, 4.0)
    assert desk.freed == [(4, 5)]
    assert (desk.table.open_count, desk.table.lease_count) == (0, 0)
    assert desk.changes == [HandleState.OPEN, HandleState.OPEN, HandleState.SEALED, HandleState.ENDED]


@pytest.mark.parametrize(("first", "checksums"), [(1, [1]), (0, [1, 2, 3]), (0, [1, 2, 3, 4])])
def test_publishing_out_of_order_or_too_much_changes_nothing(desk: Desk, first: int, checksums: list[int]) -> None:
    handle = desk.offer()
    with pytest.raises(InvalidRequestError):
        desk.table.publish(ID, first, checksums, 0.0)
    assert handle.ready_count == 0


def test_a_handle_with_missing_blocks_cannot_be_sealed(desk: Desk) -> None:
    desk.offer()
    desk.table.publish(ID, 0, [1], 0.0)
    with pytest.raises(InvalidRequestError, match="1 of 2 blocks"):
        desk.table.seal(ID, b"", 0.0)


def test_a_sealed_handle_takes_no_more_blocks_and_no_second_seal(desk: Desk) -> None:
    desk.sealed()
    with pytest.raises(InvalidRequestError):
        desk.table.publish(ID, 2, [], 1.0)
    with pytest.raises(InvalidRequestError):
        desk.table.seal(ID, b"", 1.0)


def test_the_lease_starts_at_the_seal_and_runs_out(desk: Desk) -> None:
    desk.sealed(now=10.0)
    desk.table.expire(39.9)
    assert desk.table.find(ID, 39.9)
    desk.table.expire(40.0)
    assert desk.freed == [(4, 5)]
    with pytest.raises(LeaseExpiredError):
        desk.table.find(ID, 40.0)


def test_a_lease_that_ran_out_is_over_before_anybody_swept(desk: Desk) -> None:
    desk.sealed()
    with pytest.raises(LeaseExpiredError, match="the lease ran out"):
        desk.table.find(ID, LEASE)


def test_renewing_makes_the_lease_run_anew(desk: Desk) -> None:
    desk.sealed()
    assert desk.table.renew(ID, 29.0) == LEASE
    desk.table.expire(58.9)
    assert not desk.freed
    desk.table.expire(59.0)
    assert desk.freed == [(4, 5)]


def test_renewing_does_not_prolong_an_unsealed_handle(desk: Desk) -> None:
    handle = desk.offer()
    desk.table.renew(ID, 90.0)
    desk.table.expire(TIMEOUT)
    assert handle.state is HandleState.ENDED


def test_release_is_idempotent_and_knows_no_strangers(desk: Desk) -> None:
    desk.sealed()
    assert desk.table.release(ID, 1.0)
    assert not desk.table.release(ID, 1.0)
    assert not desk.table.release(bytes(16), 1.0)
    assert desk.freed == [(4, 5)]


def test_a_released_offer_keeps_its_blocks_while_the_engine_may_write(desk: Desk) -> None:
    desk.offer()
    assert desk.table.release(ID, 1.0)
    assert (desk.freed, desk.table.open_count) == ([], 0)
    with pytest.raises(LeaseExpiredError, match="released"):
        desk.table.publish(ID, 0, [1], 2.0)
    assert not desk.freed
    assert desk.table.withdraw(ID, "", 3.0)
    assert desk.freed == [(4, 5)]


def test_an_expired_offer_keeps_its_blocks_until_the_engine_seals_in_vain(desk: Desk) -> None:
    desk.offer()
    desk.table.expire(TIMEOUT)
    assert not desk.freed
    with pytest.raises(LeaseExpiredError, match="the offer ran out"):
        desk.table.seal(ID, b"", TIMEOUT + 1)
    assert desk.freed == [(4, 5)]


def test_a_withdrawal_names_its_reason_and_is_idempotent(desk: Desk) -> None:
    handle = desk.offer()
    assert desk.table.withdraw(ID, "the client left", 1.0)
    assert (handle.failure, desk.freed) == ("the client left", [(4, 5)])
    assert not desk.table.withdraw(ID, "again", 2.0)


def test_a_withdrawal_that_overtakes_its_offer_prevents_it(desk: Desk) -> None:
    assert not desk.table.withdraw(ID, "the client left", 1.0)
    with pytest.raises(LeaseExpiredError):
        desk.offer()


def test_an_id_is_offered_once(desk: Desk) -> None:
    desk.offer()
    with pytest.raises(InvalidRequestError) as refusal:
        desk.offer(blocks=(6,))
    assert ID.hex() not in refusal.value.message


def test_blocks_wait_for_reads_that_began_under_the_lease(desk: Desk) -> None:
    desk.sealed()
    read = desk.table.begin_read(ID, 29.0, refused)
    desk.table.expire(30.0)
    assert (desk.freed, desk.table.read_count) == ([], 1)
    assert not desk.table.end_read(read, 31.0)
    assert desk.freed == [(4, 5)]
    assert desk.table.read_count == 0


def test_a_read_that_ends_in_time_was_good(desk: Desk) -> None:
    desk.sealed()
    read = desk.table.begin_read(ID, 1.0, refused)
    assert desk.table.end_read(read, 2.0)
    assert not desk.table.end_read(read, 2.0)


def test_a_read_that_outlives_the_lease_is_bad_even_if_nobody_swept(desk: Desk) -> None:
    desk.sealed()
    read = desk.table.begin_read(ID, 29.9, refused)
    assert not desk.table.end_read(read, 30.0)
    assert desk.freed == [(4, 5)]


def test_a_read_that_outlives_the_grace_is_refused_and_then_the_blocks_are_free(desk: Desk) -> None:
    desk.sealed()
    calls: list[str] = []
    read = desk.table.begin_read(ID, 29.0, lambda: calls.append("refused"))
    desk.table.expire(30.0)
    desk.table.expire(30.0 + GRACE - 0.1)
    assert (calls, desk.freed) == ([], [])
    desk.table.expire(30.0 + GRACE)
    assert (calls, desk.freed) == (["refused"], [(4, 5)])
    assert not desk.table.end_read(read, 40.0)
    assert desk.freed == [(4, 5)]


def test_a_handle_withdrawn_during_a_read_keeps_its_blocks_until_the_read_ends(desk: Desk) -> None:
    desk.sealed()
    read = desk.table.begin_read(ID, 1.0, refused)
    desk.table.withdraw(ID, "stop", 2.0)
    assert not desk.freed
    with pytest.raises(LeaseExpiredError):
        desk.table.begin_read(ID, 2.0, refused)
    assert not desk.table.end_read(read, 3.0)
    assert desk.freed == [(4, 5)]


def test_a_public_name_finds_a_handle_only_while_it_is_there(desk: Desk) -> None:
    handle = desk.sealed()
    assert desk.table.find_by_tag(handle_tag(ID)) is handle
    desk.table.release(ID, 1.0)
    assert desk.table.find_by_tag(handle_tag(ID)) is None


def test_closing_ends_every_handle(desk: Desk) -> None:
    desk.sealed()
    other = desk.offer(bytes(16), (7,))
    desk.table.close("the worker stops", 1.0)
    assert desk.freed == [(4, 5)]
    assert (other.state, other.failure, desk.table.open_count) == (HandleState.ENDED, "the worker stops", 0)


def test_a_secret_does_not_show_in_the_representation(desk: Desk) -> None:
    assert repr(ID) not in repr(desk.offer())
