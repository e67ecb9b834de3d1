"""Stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.errors import InvalidRequestError
from halfmoon.text import StopMatcher

LETTERS = "abc🙂"
STOPS = st.lists(st.text(alphabet=LETTERS, min_size=1, max_size=5), max_size=4)
CHUNKS = st.lists(st.text(alphabet=LETTERS, max_size=6), max_size=10)


def run(matcher: StopMatcher, chunks: list[str]) -> tuple[str, str | None]:
    """Text and match of a stream."""
    text, matched = "", None
    for chunk in chunks:
        result = matcher.push(chunk)
        text += result.text
        matched = result.matched
    return text + matcher.flush(), matched


def expected(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The rule in plain words: the first end at which a stop string is complete, and the longest that ends there."""
    for end in range(len(text) + 1):
        matches = [stop for stop in stops if text[:end].endswith(stop)]
        if matches:
            match = max(matches, key=len)
            return text[: end if include else end - len(match)], match
    return text, None


@given(stops=STOPS, chunks=CHUNKS, include=st.booleans())
def test_any_cutting_into_chunks_gives_the_same_text_and_match(
    stops: list[str], chunks: list[str], include: bool
) -> None:
    matcher = StopMatcher(stops, include_in_output=include)
    assert run(matcher, chunks) == expected("".join(chunks), stops, include)


@given(stops=STOPS, chunks=CHUNKS)
def test_exactly_what_may_still_become_a_stop_string_is_held_back(stops: list[str], chunks: list[str]) -> None:
    matcher = StopMatcher(stops)
    seen = sent = ""
    for chunk in chunks:
        result = matcher.push(chunk)
        seen, sent = seen + chunk, sent + result.text
        if result.matched:
            return
        ends = [size for stop in stops for size in range(1, len(stop)) if seen.endswith(stop[:size])]
        assert len(seen) - len(sent) == max(ends, default=0)
        assert seen.startswith(sent)


def test_without_stop_strings_text_passes_at_once() -> None:
    matcher = StopMatcher([])
    assert matcher.push("hello").text == "hello"
    assert matcher.flush() == ""


def test_a_stop_string_over_several_tokens_is_cut_exactly() -> None:
    matcher = StopMatcher(["END OF"])
    results = [matcher.push(piece) for piece in ["one E", "ND", " O", "F two"]]
    assert [result.text for result in results] == ["one ", "", "", ""]
    assert results[-1].matched == "END OF"


def test_text_that_only_looked_like_a_stop_string_is_given_back() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.push("a\n\nUs").text == "a"
    assert matcher.push("ual").text == "\n\nUsual"
    assert matcher.push("\n\n").text == ""
    assert matcher.flush() == "\n\n"


def test_the_first_of_several_stop_strings_wins_however_they_are_listed() -> None:
    for stops in (["world", "hello"], ["hello", "world"]):
        assert run(StopMatcher(stops), ["say hello world"]) == ("say ", "hello")


def test_the_stop_string_is_included_on_request() -> None:
    assert run(StopMatcher(["lo"], include_in_output=True), ["hel", "lo", "!"]) == ("hello", "lo")


def test_nothing_follows_a_match() -> None:
    matcher = StopMatcher(["b"])
    matcher.push("ab")
    assert matcher.push("more") == matcher.push("b")
    assert (matcher.push("c").text, matcher.push("c").matched, matcher.flush()) == ("", "b", "")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="empty") as caught:
        StopMatcher(["a", ""])
    assert caught.value.param == "stop"
