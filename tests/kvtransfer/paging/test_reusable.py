"""What a worker can reuse, and what it tells its routers of it."""

from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.core.content_log import ContentLog
from kvtransfer.paging import ReusablePages

A, B, C = (bytes([each]) * 16 for each in range(3))
CONTENTS = st.sets(st.sampled_from([bytes([each]) * 16 for each in range(6)]))


def test_a_page_is_gone_when_neither_the_device_nor_the_store_has_it() -> None:
    pages = ReusablePages()
    pages.device_changed([A, B], [])
    pages.store_changed(stored=[A])
    assert pages.take_changes() == ([A, B], [])
    pages.device_changed([], [A, B])
    assert pages.take_changes() == ([A], [B])
    pages.store_changed(removed=[A])
    assert pages.take_changes() == ([], [A])
    assert pages.take_changes() == ([], [])


def test_only_the_store_counts_for_what_may_be_looked_for_there() -> None:
    pages = ReusablePages()
    pages.device_changed([A], [])
    pages.store_changed(stored=[B])
    assert (pages.in_store(A), pages.in_store(B)) == (False, True)


def test_all_that_the_store_has_replaces_what_it_was_thought_to_have() -> None:
    pages = ReusablePages()
    pages.store_changed(stored=[A, B])
    pages.take_changes()
    pages.replace_store([B, C])
    stored, removed = pages.take_changes()
    assert (set(stored) & {A}, set(removed)) == (set(), {A})
    assert [each for each in (A, B, C) if pages.in_store(each)] == [B, C]


@given(steps=st.lists(st.tuples(st.sampled_from(["device", "store", "report"]), CONTENTS)))
def test_a_router_that_follows_the_changes_knows_what_there_is(steps: list[tuple[str, set[bytes]]]) -> None:
    pages, router = ReusablePages(), set[bytes]()
    device, store = set[bytes](), set[bytes]()
    for what, contents in [*steps, ("report", set())]:
        if what == "device":
            pages.device_changed(contents - device, device - contents)
            device = contents
        elif what == "store":
            pages.replace_store(contents)
            store = contents
        else:
            stored, removed = pages.take_changes()
            router = (router - set(removed)) | set(stored)
            assert router == device | store


@given(steps=st.lists(st.tuples(CONTENTS, st.booleans())))
def test_a_reader_of_changes_follows_whatever_answers_get_lost(steps: list[tuple[set[bytes], bool]]) -> None:
    log, version, known = ContentLog(), 0, set[bytes]()
    for contents, lost in steps:
        news = log.changes(version, frozenset(contents))
        if not lost:
            known = set(news.stored) if news.whole else (known - news.removed) | news.stored
            version = news.version
            assert known == contents
