"""Streams of chunks, however they are cut."""

import msgspec
import pytest

from bench.answer import Answer
from bench.samples import Sample
from halfmoon.errors import UnavailableError


def event(**fields: object) -> bytes:
    """One event of a stream."""
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def chunk(text: str, ids: list[int] | None = None, end: str | None = None) -> bytes:
    """A chunk of one choice."""
    return event(choices=[{"text": text, "token_ids": ids, "finish_reason": end}])


def usage(tokens: int) -> bytes:
    """The last chunk."""
    return event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": tokens}) + b"data: [DONE]\n\n"


def read(*timed: tuple[float, bytes]) -> Sample:
    """The sample of bytes that came at given times."""
    answer, sample = Answer(), Sample(0.0, 0.0)
    for now, data in timed:
        answer.push(data, now)
    answer.into(sample)
    return sample


def test_token_ids_say_what_a_chunk_holds() -> None:
    got = read((1.0, chunk("a", [1])), (2.0, chunk("", [2, 3])), (3.0, chunk("b", [4], "length")), (4.0, usage(4)))
    assert (got.arrivals, got.counts, got.finished, got.prompt_tokens) == ([1.0, 2.0, 3.0], [1, 2, 1], 3.0, 7)


def test_without_token_ids_usage_is_spread_by_length_of_text() -> None:
    got = read((1.0, chunk("a")), (2.0, chunk("abcdef")), (3.0, chunk("", end="stop")), (4.0, usage(8)))
    assert (got.arrivals, got.counts, got.finished) == ([1.0, 2.0], [2, 6], 3.0)


def test_without_usage_a_chunk_is_a_token() -> None:
    got = read((1.0, chunk("a")), (2.0, chunk("b")), (3.0, chunk("c", end="stop")))
    assert got.counts == [1, 1, 1]


def test_fewer_tokens_than_chunks_still_sum_up() -> None:
    got = read((1.0, chunk("a")), (2.0, chunk("b")), (3.0, chunk("c", end="stop")), (3.0, usage(2)))
    assert got.output_tokens == 2


def test_chunks_of_one_arrival_count_together() -> None:
    got = read((1.0, chunk("a", [1])), (2.0, chunk("b", [2]) + chunk("c", [3], "length") + usage(3)))
    assert (got.arrivals, got.counts) == ([1.0, 2.0], [1, 2])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_events_may_be_cut_anywhere(size: int) -> None:
    data = chunk("ä", [1]).replace(b"\n", b"\r\n") + b": comment\n\n" + chunk("b", [2], "length") + usage(2)
    got = read(*((float(index), data[index : index + size]) for index in range(0, len(data), size)))
    assert got.output_tokens == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (chunk("a", [1]), "ended before the answer did"),
        (event(error={"message": "out of pages"}), "out of pages"),
        (b"data: {]\n\n", "no chunk"),
    ],
)
def test_a_broken_stream_says_how(data: bytes, said: str) -> None:
    with pytest.raises(UnavailableError, match=said):
        read((1.0, data))
