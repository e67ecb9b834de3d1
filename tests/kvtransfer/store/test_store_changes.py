"""What the store holds, told as changes."""

from pathlib import Path

from kvtransfer.core.content_log import ContentChanges, ContentLog
from kvtransfer.store.page_file import HEADER_BYTES
from tests.kvtransfer.planes import GEOMETRY, offer, plane_spec, planes
from tests.kvtransfer.store.pages import get, hashes, put, saved

A, B, C = b"a", b"b", b"c"


def held(*contents: bytes) -> frozenset[bytes]:
    return frozenset(contents)


def test_the_first_answer_is_everything_and_later_ones_are_changes() -> None:
    log = ContentLog()
    assert log.changes(0, held(A, B)) == ContentChanges(1, True, held(A, B))
    assert log.changes(1, held(B, C)) == ContentChanges(2, False, held(C), held(A))


def test_nothing_new_is_an_empty_change() -> None:
    log, same = ContentLog(), held(A)
    log.changes(0, same)
    assert log.changes(1, same) == ContentChanges(2, False, held())


def test_a_reader_that_missed_an_answer_gets_everything() -> None:
    log = ContentLog()
    log.changes(0, held(A))
    log.changes(1, held(A, B))
    assert log.changes(1, held(C)) == ContentChanges(3, True, held(C))


async def test_pages_come_with_their_put_and_go_with_their_last_copy(tmp_path: Path) -> None:
    disk_bytes = 2 * (HEADER_BYTES + GEOMETRY.block_bytes)
    spec = plane_spec("a", 1, host_blocks=4, store_blocks=4, disk_folder=str(tmp_path), disk_bytes=disk_bytes)
    async with planes(spec) as (plane,):
        news = await plane.store.changes(0)
        assert (news.whole, news.stored) == (True, ())
        await put(plane, 1, 2)
        await saved(plane, 2)
        news = await plane.store.changes(news.version)
        assert (news.whole, set(news.stored), news.removed) == (False, set(hashes(1, 2)), ())
        await plane.withdraw((await offer(plane, 4)).handle.handle_id, "done")
        news = await plane.store.changes(news.version)
        assert (news.stored, news.removed) == ((), ())
        await put(plane, 3)
        await saved(plane, 3)
        news = await plane.store.changes(news.version)
        assert len(news.removed) == 1
        assert set(news.stored) == set(hashes(3))
        assert await get(plane, 3) == 1
