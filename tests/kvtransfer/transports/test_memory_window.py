"""Memory that an engine can touch only while it is open: what the kernel says to system calls into it."""

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtransfer.region import Region
from kvtransfer.transports.memory_window import MemoryWindow

PAGE = 4096
_libc = ctypes.CDLL(None, use_errno=True)
for _call in (_libc.write, _libc.read):
    _call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    _call.restype = ctypes.c_ssize_t


@pytest.fixture
def region() -> Iterator[Region]:
    """Eight pages, each full of its number, that nobody can map for writing any more."""
    made = Region.create(8 * PAGE)
    made.view(0, made.size)[:] = [page for page in range(8) for _ in range(PAGE)]
    made.forbid_new_writers()
    yield made
    made.close()


def sent(window: MemoryWindow, offset: int, length: int) -> bytes | int:
    """What a system call sends from there, or its error."""
    with os.fdopen(os.memfd_create("sent"), "rb") as file:
        count = _libc.write(file.fileno(), window.address + offset, length)
        file.seek(0)
        return file.read(length) if count == length else ctypes.get_errno()


def received(window: MemoryWindow, offset: int, data: bytes) -> int:
    """The error of a system call that receives to there; 0 for none."""
    with os.fdopen(os.memfd_create("received"), "r+b", buffering=0) as file:
        file.write(data)
        file.seek(0)
        count = _libc.read(file.fileno(), window.address + offset, len(data))
        return 0 if count == len(data) else ctypes.get_errno()


def mappings() -> int:
    """Of host pools."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("halfmoon-kv")


def test_a_window_is_shut_when_made_and_shows_what_is_open_alone(region: Region) -> None:
    window = MemoryWindow(region, writable=False)
    assert sent(window, 0, 1) == errno.EFAULT
    opening = window.open([(PAGE, PAGE), (5 * PAGE + 100, 10)])
    assert sent(window, PAGE, PAGE) == bytes([1]) * PAGE
    assert sent(window, 5 * PAGE + 100, 10) == bytes([5]) * 10
    for shut in (0, 2, 4, 6):
        assert sent(window, shut * PAGE, 1) == errno.EFAULT
    opening.shut()
    assert sent(window, PAGE, 1) == errno.EFAULT
    window.close()


def test_a_page_stays_open_until_the_last_that_opened_it_has_shut_it(region: Region) -> None:
    window = MemoryWindow(region, writable=False)
    first, second = window.open([(0, 3 * PAGE)]), window.open([(2 * PAGE, 3 * PAGE)])
    first.shut()
    first.shut()
    assert [sent(window, page * PAGE, 1) for page in range(6)] == [errno.EFAULT] * 2 + [
        b"\2",
        b"\3",
        b"\4",
        errno.EFAULT,
    ]
    second.shut()
    assert [sent(window, page * PAGE, 1) for page in range(6)] == [errno.EFAULT] * 6
    window.close()


def test_a_window_for_reading_cannot_be_written(region: Region) -> None:
    window = MemoryWindow(region, writable=False)
    window.open([(0, PAGE)])
    assert received(window, 0, b"x") == errno.EFAULT
    assert region.view(0, 1)[0] == 0
    window.close()


def test_a_window_for_writing_writes_the_region_while_it_is_open(region: Region) -> None:
    window = MemoryWindow(region, writable=True)
    opening = window.open([(3 * PAGE, PAGE)])
    assert received(window, 3 * PAGE + 1, b"xyz") == 0
    assert region.view(3 * PAGE, 5).tobytes() == b"\3xyz\3"
    opening.shut()
    assert received(window, 3 * PAGE + 1, b"abc") == errno.EFAULT
    assert region.view(3 * PAGE, 5).tobytes() == b"\3xyz\3"
    window.close()


def test_a_buried_window_leaves_nothing_at_its_addresses_and_no_mapping(region: Region) -> None:
    before = mappings()
    window = MemoryWindow(region, writable=False)
    window.open([(0, PAGE)])
    address = window.address
    window.bury()
    assert window.address == 0
    window.address = address
    assert sent(window, 0, 1) == errno.EFAULT
    assert mappings() == before


def test_a_closed_window_opens_no_more(region: Region) -> None:
    window = MemoryWindow(region, writable=False)
    opening = window.open([(0, PAGE)])
    window.close()
    window.close()
    opening.shut()
    with pytest.raises(OSError, match="closed"):
        window.open([(0, PAGE)])
