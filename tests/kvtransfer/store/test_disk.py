"""Pages on disk: whole or not at all, within the bound, and found again."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError
from kvtransfer.checksum import block_checksum
from kvtransfer.store import disk
from kvtransfer.store.base import TierPage, TierPlace
from kvtransfer.store.disk import DiskTier
from kvtransfer.store.page_file import HEADER_BYTES, SUFFIX
from tests.kvtransfer.planes import GEOMETRY
from tests.kvtransfer.store.pages import content, hashes, page_hash

FILE_BYTES = HEADER_BYTES + GEOMETRY.block_bytes
FOREVER = float("inf")


@contextmanager
def opened(
    folder: Path, *, pages: int = 8, geometry: PageGeometry = GEOMETRY, fingerprint: str = "model"
) -> Iterator[DiskTier]:
    """A tier with room for so many pages."""
    tier = DiskTier(folder, pages * FILE_BYTES, geometry, fingerprint)
    try:
        yield tier
    finally:
        tier.close()


def write(tier: DiskTier, *numbers: int, deadline: float = FOREVER) -> list[bool]:
    pages = [(page_hash(number), content(page_hash(number))) for number in numbers]
    return tier.write([TierPage(each, block_checksum(data), data) for each, data in pages], deadline=deadline)


def read(tier: DiskTier, *numbers: int) -> list[int]:
    """The numbers of the pages that are there. Fails the test for a wrong byte."""
    places = [TierPlace(page_hash(number), np.zeros(GEOMETRY.block_bytes, np.uint8)) for number in numbers]
    checksums = tier.read(places, deadline=FOREVER)
    found = []
    for number, place, checksum in zip(numbers, places, checksums, strict=True):
        if checksum is not None:
            assert np.array_equal(place.data, content(place.content_hash))
            assert checksum == block_checksum(place.data)
            found.append(number)
    return found


def file_of(folder: Path, number: int) -> Path:
    return folder / f"{page_hash(number).hex()}{SUFFIX}"


def test_pages_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        assert write(tier, 1, 2, 3) == [True] * 3
        assert read(tier, 3, 4, 1) == [3, 1]
        assert tier.contains(hashes(1, 4), deadline=FOREVER) == [True, False]
        usage = tier.usage()
        assert (usage.stored, usage.dropped, usage.bytes) == (3, 0, 3 * FILE_BYTES)


def test_they_are_found_again_by_the_next_process(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        write(tier, 1, 2)
    with opened(tmp_path) as tier:
        assert tier.knows(page_hash(1))
        assert read(tier, 1, 2) == [1, 2]
        assert tier.usage().bytes == 2 * FILE_BYTES


def test_nobody_else_can_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with opened(folder) as tier:
        write(tier, 1)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file_of(folder, 1).stat().st_mode & 0o777 == 0o600


def test_a_page_is_written_once(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        write(tier, 1)
        assert write(tier, 1, 2) == [True, True]
        assert tier.usage().stored == 2


def test_the_page_used_least_recently_makes_room(tmp_path: Path) -> None:
    with opened(tmp_path, pages=3) as tier:
        write(tier, 1, 2, 3)
        read(tier, 1)
        tier.touch(hashes(2))
        write(tier, 4)
        assert read(tier, 1, 2, 3, 4) == [1, 2, 4]
        assert not file_of(tmp_path, 3).exists()
        assert tier.usage().dropped == 1
        assert tier.usage().bytes <= tier.usage().limit_bytes


def test_of_pages_read_together_the_last_goes_first(tmp_path: Path) -> None:
    with opened(tmp_path, pages=3) as tier:
        write(tier, 1, 2, 3)
        read(tier, 1, 2, 3)
        write(tier, 4)
        assert read(tier, 1, 2, 3, 4) == [1, 2, 4]


def test_a_batch_larger_than_the_bound_keeps_the_bound(tmp_path: Path) -> None:
    with opened(tmp_path, pages=2) as tier:
        assert write(tier, 1, 2, 3) == [False, True, True]
        assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 2


def test_the_order_of_use_outlasts_the_process(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        write(tier, 1, 2, 3)
    for age, number in enumerate((2, 3, 1)):
        os.utime(file_of(tmp_path, number), times=(0, time.time() - 100 + age))
    with opened(tmp_path, pages=2) as tier:
        assert read(tier, 1, 2, 3) == [1, 3]
        assert not file_of(tmp_path, 2).exists()
        assert 90 > tier.usage().age_seconds >= 0


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


BEFORE_START: dict[str, Callable[[Path], object]] = {
    "cut in the bytes": lambda path: os.truncate(path, FILE_BYTES - 1),
    "cut in the header": lambda path: os.truncate(path, 20),
    "empty": lambda path: os.truncate(path, 0),
    "too long": lambda path: os.truncate(path, FILE_BYTES + 1),
    "another magic": lambda path: flip(path, 0),
    "another version": lambda path: flip(path, 16),
    "another geometry": lambda path: flip(path, 20),
    "another page": lambda path: path.write_bytes(file_of(path.parent, 2).read_bytes()),
    "a folder": lambda path: path.rename(path.with_suffix(".gone")).with_suffix(SUFFIX).mkdir(),
}


@pytest.mark.parametrize("damage", BEFORE_START.values(), ids=BEFORE_START)
def test_a_torn_or_foreign_file_is_dropped_at_the_start(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    with opened(tmp_path) as tier:
        write(tier, 1, 2)
    damage(file_of(tmp_path, 1))
    with opened(tmp_path) as tier:
        assert tier.usage().damaged == 1
        assert read(tier, 1, 2) == [2]
        assert tier.usage().bytes == FILE_BYTES


@pytest.mark.parametrize("at", [0, 30, 100, HEADER_BYTES - 1, HEADER_BYTES, FILE_BYTES - 1])
def test_a_file_that_is_damaged_later_is_dropped_when_it_is_read(tmp_path: Path, at: int) -> None:
    with opened(tmp_path) as tier:
        write(tier, 1, 2)
        flip(file_of(tmp_path, 1), at)
        assert read(tier, 1, 2) == [2]
        assert not file_of(tmp_path, 1).exists()
        assert tier.usage().damaged == 1
        assert write(tier, 1) == [True]
        assert read(tier, 1) == [1]


def test_a_file_that_somebody_has_removed_is_a_miss(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        write(tier, 1)
        file_of(tmp_path, 1).unlink()
        assert read(tier, 1) == []
        assert tier.usage().bytes == 0


@pytest.mark.parametrize(
    "changes", [{"fingerprint": "other"}, {"geometry": replace(GEOMETRY, kv_heads=2, head_dim=12)}]
)
def test_pages_of_another_model_or_geometry_are_dropped(tmp_path: Path, changes: dict[str, object]) -> None:
    with opened(tmp_path) as tier:
        write(tier, 1)
    with opened(tmp_path, **changes) as tier:  # type: ignore[arg-type]
        assert not tier.knows(page_hash(1))
        assert not file_of(tmp_path, 1).exists()


def test_what_a_write_left_behind_is_removed_and_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{page_hash(1).hex()}.kvpage-new").write_bytes(b"half a page")
    others = [tmp_path / name for name in ("notes.txt", "abc.kvpage", f"{page_hash(1).hex()}.bak")]
    for path in others:
        path.write_text("mine")
    with opened(tmp_path):
        left = {path.name for path in tmp_path.iterdir()} - {"in-use"}
    assert left == {path.name for path in others}


def test_a_folder_belongs_to_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_LOCK_SECONDS", 0.1)
    with opened(tmp_path), pytest.raises(ConfigError, match="in use by another worker"):
        DiskTier(tmp_path, 1 << 20, GEOMETRY, "model")
    with opened(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot keep KV pages in"):
        DiskTier(tmp_path / "file" / "folder", 1 << 20, GEOMETRY, "model")


def test_a_bound_below_one_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"one takes {FILE_BYTES}"):
        DiskTier(tmp_path, FILE_BYTES - 1, GEOMETRY, "model")


def test_a_disk_that_does_not_take_pages_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(tmp_path) as tier:
        for number in (1, 2):
            (tmp_path / f"{page_hash(number).hex()}.kvpage-new").mkdir()
        assert write(tier, 1, 2, 3) == [False, False, True]
        assert (tier.usage().dropped, tier.usage().bytes) == (2, FILE_BYTES)
    assert 1 <= caplog.text.count("KV pages cannot be written") <= 2


def test_nothing_is_begun_after_the_deadline(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        assert write(tier, 1, deadline=0.0) == [False]
        write(tier, 1)
        place = TierPlace(page_hash(1), np.zeros(GEOMETRY.block_bytes, np.uint8))
        assert tier.read([place], deadline=0.0) == [None]
        assert tier.knows(page_hash(1))
