"""Host pool memory: alignment, seals, views."""

import mmap
import os

import numpy as np
import pytest

from halfmoon.errors import TransferError
from kvtransfer.checksum import block_checksum
from kvtransfer.layout import BlockLayout
from kvtransfer.region import Region


@pytest.mark.parametrize("block_bytes", [1, 4095, 4096, 4097, 2949120])
def test_every_block_begins_at_a_page(block_bytes: int) -> None:
    layout = BlockLayout(block_bytes, 3)
    assert layout.stride % mmap.PAGESIZE == 0
    assert layout.stride - mmap.PAGESIZE < block_bytes <= layout.stride
    assert [layout.index(layout.offset(block)) for block in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("offset", [-4096, 1, 4096, 3 * 8192])
def test_an_offset_between_blocks_is_no_block(offset: int) -> None:
    with pytest.raises(ValueError, match="no host block begins"):
        BlockLayout(5000, 3).index(offset)


@pytest.mark.parametrize(
    ("offset", "length", "block"),
    [
        (0, 5000, 0),
        (8192 + 10, 1, 1),
        (8192 + 4999, 1, 1),
        (0, 5001, None),
        (4999, 2, None),
        (-1, 2, None),
        (0, 0, None),
        (3 * 8192, 1, None),
        (8192, 8192, None),
    ],
)
def test_a_range_lies_in_one_block_or_in_none(offset: int, length: int, block: int | None) -> None:
    assert BlockLayout(5000, 3).block_of(offset, length) == block


def test_two_mappings_see_the_same_bytes() -> None:
    region = Region.create(8192)
    other = Region.attach(os.dup(region.fd))
    region.view(100, 3)[:] = (1, 2, 3)
    assert list(other.view(100, 3)) == [1, 2, 3]
    assert region.view(0, 8192).ctypes.data % mmap.PAGESIZE == 0
    other.close()
    region.close()


def test_memory_never_changes_its_size() -> None:
    region = Region.create(8192)
    for size in (4096, 16384):
        with pytest.raises(PermissionError):
            os.ftruncate(region.fd, size)
    region.close()


def test_after_sealing_a_newcomer_can_only_read() -> None:
    region = Region.create(8192)
    region.forbid_new_writers()
    with pytest.raises(PermissionError):
        mmap.mmap(region.fd, 8192)
    reader = Region.attach_readonly(os.dup(region.fd), 8192)
    region.view(0, 1)[0] = 9
    assert reader.view(0, 1)[0] == 9
    assert not reader.view(0, 1).flags.writeable
    reader.close()
    region.close()


@pytest.mark.parametrize("size", [4096, 16384])
def test_memory_of_another_size_than_said_is_not_mapped(size: int) -> None:
    region = Region.create(8192)
    with pytest.raises(TransferError):
        Region.attach_readonly(os.dup(region.fd), size)
    region.close()


def test_memory_that_could_shrink_is_not_mapped() -> None:
    fd = os.memfd_create("unsealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    with pytest.raises(TransferError):
        Region.attach_readonly(fd, 4096)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_view_outlives_its_region() -> None:
    region = Region.create(4096)
    view = region.view(0, 4096)
    region.close()
    region.close()
    view[:] = 1
    assert view.sum() == 4096


@pytest.mark.parametrize(("offset", "length"), [(4096, 1), (-1, 1), (0, 4097), (0, -1)])
def test_a_view_outside_is_refused(offset: int, length: int) -> None:
    region = Region.create(4096)
    with pytest.raises(ValueError, match="lie outside"):
        region.view(offset, length)
    region.close()


def test_a_single_flipped_bit_changes_the_checksum() -> None:
    data = np.arange(10000, dtype=np.uint8)
    before = block_checksum(data)
    data[7777] ^= 1
    assert block_checksum(data) != before
    assert 0 <= before < 1 << 64
