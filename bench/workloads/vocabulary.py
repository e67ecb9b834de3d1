"""Random token ids."""

import random

SAFE_SIZE = 30_000
"""Ids that every model in use has, where the server does not tell how many there are."""

_MARGIN = 50
"""Divides a vocabulary into parts of which the first and the last are left out: control tokens lie there."""


def random_ids(source: random.Random, count: int, vocab_size: int) -> list[int]:
    """`count` ids from the inner part of a vocabulary of `vocab_size` ids."""
    margin = vocab_size // _MARGIN
    return source.choices(range(margin, vocab_size - margin), k=count)
