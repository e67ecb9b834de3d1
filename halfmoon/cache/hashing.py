"""Content hashes of full pages: a chain, so that equal hashes mean equal prefixes.

Each hash covers its parent's hash and the page's token ids; the first parent is a salt of everything else that the KV
depends on (model, weights revision, KV dtype, page size). The same idea as vLLM's automatic prefix caching.
"""

import hashlib
from array import array
from collections.abc import Sequence

HASH_BYTES = 16


def cache_salt(fingerprint: str, dtype: str, page_size: int) -> bytes:
    """The root of the chain for one model, weights revision, KV dtype and page size."""
    return hashlib.blake2b(f"{fingerprint}/{dtype}/{page_size}".encode(), digest_size=HASH_BYTES).digest()


def page_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Hash of one full page that follows `parent`."""
    digest = hashlib.blake2b(parent, digest_size=HASH_BYTES)
    digest.update(array("I", token_ids).tobytes())
    return digest.digest()


def page_hashes(salt: bytes, token_ids: Sequence[int], page_size: int) -> list[bytes]:
    """Hashes of all full pages of `token_ids`, in order; a partial last page has none."""
    hashes: list[bytes] = []
    parent = salt
    for start in range(0, len(token_ids) - page_size + 1, page_size):
        parent = page_hash(parent, token_ids[start : start + page_size])
        hashes.append(parent)
    return hashes
