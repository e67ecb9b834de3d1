"""A peer that failed is left alone for a while, and then tried again."""

from kvtransfer.core.avoided import AvoidedPeers


def test_a_peer_is_avoided_until_its_time_is_over() -> None:
    peers = AvoidedPeers(10.0)
    assert not peers.avoids("a", 0.0)
    peers.failed("a", 5.0)
    assert peers.avoids("a", 14.9)
    assert not peers.avoids("b", 14.9)
    assert not peers.avoids("a", 15.0)


def test_what_is_remembered_is_bounded() -> None:
    peers = AvoidedPeers(10.0)
    for number in range(5000):
        peers.failed(str(number), 0.0)
    assert not peers.avoids("0", 1.0)
    assert peers.avoids("4999", 1.0)
