"""The prefix index agrees with a plain model of what each worker reported."""

from hypothesis import given, settings
from hypothesis import strategies as st

from halfmoon.rpc import CacheFeed
from router.prefix_index import PrefixIndex

WORKERS = ("a", "b", "c")
HASHES = [bytes([number]) for number in range(8)]
HASH = st.sampled_from(HASHES)
CHANGE = st.tuples(st.sampled_from(WORKERS), st.lists(HASH, max_size=4), st.lists(HASH, max_size=4))


def longest(chain: list[bytes], held: set[bytes]) -> int:
    length = 0
    while length < len(chain) and chain[length] in held:
        length += 1
    return length


@settings(deadline=None)
@given(st.lists(CHANGE), st.lists(HASH, unique=True))
def test_prefixes_equal_those_of_the_sets_reported(
    changes: list[tuple[str, list[bytes], list[bytes]]], chain: list[bytes]
) -> None:
    index = PrefixIndex()
    held: dict[str, set[bytes]] = {worker: set() for worker in WORKERS}
    sequences = dict.fromkeys(WORKERS, 0)
    for worker in WORKERS:
        assert index.apply(worker, 0, snapshot=True, stored=[])
    for worker, stored, removed in changes:
        sequences[worker] += 1
        held[worker] = (held[worker] - set(removed)) | set(stored)
        assert index.apply(worker, sequences[worker], snapshot=False, stored=stored, removed=removed)
    expected = {worker: length for worker in WORKERS if (length := longest(chain, held[worker]))}
    assert index.longest_prefixes(chain) == expected
    assert len(index) == len(set().union(*held.values()))


@settings(deadline=None)
@given(st.lists(CHANGE), st.sampled_from(WORKERS))
def test_a_dropped_worker_leaves_nothing(changes: list[tuple[str, list[bytes], list[bytes]]], dropped: str) -> None:
    index, without = PrefixIndex(), PrefixIndex()
    for worker, stored, _ in changes:
        index.apply(worker, 1, snapshot=True, stored=stored)
        if worker != dropped:
            without.apply(worker, 1, snapshot=True, stored=stored)
    index.drop(dropped)
    assert index.longest_prefixes(HASHES) == without.longest_prefixes(HASHES)
    assert len(index) == len(without)
    assert index.cached_pages(dropped) == 0


def test_a_gap_forgets_the_worker_until_a_snapshot() -> None:
    index = PrefixIndex()
    assert index.apply("a", 1, snapshot=True, stored=HASHES[:2])
    assert not index.apply("a", 3, snapshot=False, stored=HASHES[2:3])
    assert index.longest_prefixes(HASHES) == {}
    assert not index.apply("a", 4, snapshot=False, stored=HASHES[:1])
    assert index.apply("a", 5, snapshot=True, stored=HASHES[:1])
    assert index.longest_prefixes(HASHES) == {"a": 1}


def test_a_delta_from_an_unknown_worker_asks_for_a_snapshot() -> None:
    assert not PrefixIndex().apply("a", 1, snapshot=False, stored=HASHES)


def test_a_snapshot_replaces_everything() -> None:
    index = PrefixIndex()
    index.apply("a", 1, snapshot=True, stored=HASHES[:3])
    index.apply("a", 2, snapshot=True, stored=HASHES[:1])
    assert index.longest_prefixes(HASHES) == {"a": 1}
    assert index.cached_pages("a") == 1


STEP = st.one_of(
    st.tuples(st.just("change"), st.lists(HASH, max_size=3), st.lists(HASH, max_size=3)),
    st.tuples(st.just("send"), st.integers(0, 1), st.booleans()),
)


@settings(deadline=None)
@given(st.lists(STEP))
def test_every_router_learns_the_cache_exactly_whatever_is_lost(steps: list[tuple[str, object, object]]) -> None:
    """Two routers follow one worker's feed; a message that is lost makes the next one a snapshot."""
    feed, held = CacheFeed(), set[bytes]()
    cursors = [feed.cursor(), feed.cursor()]
    indexes = [PrefixIndex(), PrefixIndex()]

    def send(router: int, lost: bool) -> None:
        delta = cursors[router].delta()
        if lost:
            cursors[router].reset()
            return
        assert indexes[router].apply(
            "w", delta.sequence, snapshot=delta.snapshot, stored=delta.stored, removed=delta.removed
        )
        assert {content_hash for content_hash in HASHES if indexes[router].longest_prefixes([content_hash])} == held

    for kind, first, second in steps:
        if kind == "change":
            assert isinstance(first, list)
            assert isinstance(second, list)
            feed.apply(stored=first, removed=second)
            held = (held - set(second)) | set(first)
        else:
            assert isinstance(first, int)
            send(first, bool(second))
    for router in (0, 1):
        send(router, lost=False)
