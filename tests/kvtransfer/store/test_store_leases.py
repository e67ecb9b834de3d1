"""Leases of stored pages: released, expired, or released before they began."""

import pytest

from halfmoon.errors import InvalidRequestError, LeaseExpiredError
from kvtransfer.core.store_leases import StoredRun, StoreLeases


def test_a_lease_ends_once() -> None:
    leases = StoreLeases()
    leases.grant(1, [b"a", b"b"], 5.0)
    assert len(leases) == 1
    assert leases.end(1) == StoredRun((b"a", b"b"), 5.0)
    assert leases.end(1) is None
    assert len(leases) == 0


def test_a_lease_runs_out() -> None:
    leases = StoreLeases()
    leases.grant(1, [b"a"], 5.0)
    leases.grant(2, [], 6.0)
    assert leases.expire(4.9) == []
    assert leases.expire(5.0) == [StoredRun((b"a",), 5.0)]
    assert leases.end(1) is None
    assert len(leases) == 1


def test_a_release_that_overtakes_its_lease_ends_it_before_it_begins() -> None:
    leases = StoreLeases()
    leases.end(7)
    with pytest.raises(LeaseExpiredError):
        leases.grant(7, [b"a"], 5.0)


@pytest.mark.parametrize("lease_id", [0, 1])
def test_an_id_names_one_lease(lease_id: int) -> None:
    leases = StoreLeases()
    leases.grant(1, [], 5.0)
    with pytest.raises(InvalidRequestError):
        leases.require_new(lease_id)
