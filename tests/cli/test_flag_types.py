"""Values of flags: what is understood and what is refused."""

from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from cli import flag_types


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("512MiB", 512 << 20), ("2g", 2 * 10**9), ("1.5 GiB", 3 << 29), ("4KB", 4000), ("1TiB", 1 << 40)],
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert flag_types.byte_size(text) == size


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((flag_types.byte_size, text) for text in ("", "0", "-1", "2 parsecs", "GiB", "1i", "1e9")),
        *((flag_types.port, text) for text in ("-1", "65536", "http", "")),
        *((flag_types.page_size, text) for text in ("0", "4", "48", "1024", "x")),
        *((flag_types.positive, text) for text in ("0", "-3", "1.5")),
        *((flag_types.seconds, text) for text in ("-1", "nan", "inf", "soon")),
        *((flag_types.address, text) for text in ("host", ":80", "host:", "host:0", "::1:80", "host:99999")),
    ],
)
def test_what_cannot_work_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        parse(text)


@pytest.mark.parametrize("text", ["10.0.0.1:7000", "router.example:1", "[::1]:7000"])
def test_addresses_are_kept_as_written(text: str) -> None:
    assert flag_types.address(text) == text


def test_page_sizes_are_powers_of_two() -> None:
    assert [flag_types.page_size(str(size)) for size in (8, 64, 512)] == [8, 64, 512]
