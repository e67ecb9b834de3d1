"""Which layouts can be read from which, and in how many pieces."""

from dataclasses import replace

import pytest

from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError, IncompatibleError
from halfmoon.v1 import devicetransfer_pb2 as pb
from halfmoon.wire import geometry_to_pb
from kvtransfer.device.layout import DeviceLayout, common_pieces, layout_from_pb, layout_to_pb

GEOMETRY = PageGeometry(layers=2, kv_heads=12, page_size=16, head_dim=8, dtype="float32")


def over(shards: int, page_counts: tuple[int, ...] = (1, 4), geometry: PageGeometry = GEOMETRY) -> DeviceLayout:
    return DeviceLayout(geometry, shards, page_counts)


@pytest.mark.parametrize(("owner", "reader", "pieces"), [(1, 1, 1), (4, 2, 4), (2, 4, 4), (4, 6, 12), (3, 3, 3)])
def test_every_piece_lies_on_one_device_at_both_ends(owner: int, reader: int, pieces: int) -> None:
    assert common_pieces(over(owner), over(reader)) == pieces
    assert pieces % owner == pieces % reader == GEOMETRY.kv_heads % pieces == 0


@pytest.mark.parametrize(
    "changes", [{"kv_heads": 6}, {"layers": 3}, {"page_size": 32}, {"head_dim": 16}, {"dtype": "bfloat16"}]
)
def test_another_geometry_is_refused_with_both_named(changes: dict[str, object]) -> None:
    other = replace(GEOMETRY, **changes)  # type: ignore[arg-type]
    with pytest.raises(IncompatibleError) as refusal:
        common_pieces(over(2), over(3, geometry=other))
    assert str(over(2)) in refusal.value.message
    assert str(over(3, geometry=other)) in refusal.value.message


def test_an_owner_that_moves_more_pages_at_once_than_the_reader_can_is_refused() -> None:
    assert common_pieces(over(1, (1, 4)), over(1, (1, 4, 16))) == 1
    with pytest.raises(IncompatibleError, match=r"1, 4 pages at once, the owner's .* 1, 4, 16 pages at once"):
        common_pieces(over(1, (1, 4, 16)), over(1, (1, 4)))


@pytest.mark.parametrize("shards", [0, 5, 24])
def test_heads_that_cannot_be_shared_out_evenly_are_no_layout(shards: int) -> None:
    with pytest.raises(ConfigError, match=f"12 KV heads cannot be shared out over {shards} devices"):
        over(shards)
    with pytest.raises(IncompatibleError, match="the peer's layout"):
        layout_from_pb(pb.DeviceLayout(geometry=geometry_to_pb(GEOMETRY), shards=shards))


def test_a_layout_comes_back_from_its_message() -> None:
    assert layout_from_pb(layout_to_pb(over(4))) == over(4)
