"""Equal page hashes mean equal prefixes under equal salts."""

from hypothesis import given
from hypothesis import strategies as st

from halfmoon.cache.hashing import HASH_BYTES, cache_salt, page_hash, page_hashes

SALT = cache_salt("0" * 32, "float32", 4)
TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=40)


@given(TOKENS, st.integers(1, 9))
def test_there_is_one_hash_per_full_page(tokens: list[int], page_size: int) -> None:
    hashes = page_hashes(SALT, tokens, page_size)
    assert len(hashes) == len(tokens) // page_size
    assert all(len(each) == HASH_BYTES for each in hashes)


@given(TOKENS, TOKENS)
def test_hashes_are_equal_as_far_as_the_pages_are(left: list[int], right: list[int]) -> None:
    pages = min(len(left), len(right)) // 4
    equal = [left[: 4 * count] == right[: 4 * count] for count in range(1, pages + 1)]
    of_left, of_right = page_hashes(SALT, left, 4), page_hashes(SALT, right, 4)
    assert [a == b for a, b in zip(of_left[:pages], of_right[:pages], strict=True)] == equal


@given(TOKENS)
def test_a_chain_can_be_made_page_by_page(tokens: list[int]) -> None:
    parent, hashes = SALT, []
    for start in range(0, len(tokens) - 3, 4):
        parent = page_hash(parent, tokens[start : start + 4])
        hashes.append(parent)
    assert hashes == page_hashes(SALT, tokens, 4)


def test_the_same_page_after_another_prefix_has_another_hash() -> None:
    first, second = page_hashes(SALT, [1, 2, 3, 4, 1, 2, 3, 4], 4)
    assert first != second


def test_model_dtype_and_page_size_each_make_another_salt() -> None:
    salts = {
        cache_salt(fingerprint, dtype, page_size)
        for fingerprint in ("0" * 32, "1" * 32)
        for dtype in ("float32", "bfloat16")
        for page_size in (16, 64)
    }
    assert len(salts) == 8


def test_hashes_are_the_same_in_every_process_and_version() -> None:
    """Router and workers, also of different releases, must agree."""
    assert page_hashes(SALT, [1, 2, 3, 4, 5], 4) == [bytes.fromhex("41b75b78d10fb61835f49843e30f5e76")]
