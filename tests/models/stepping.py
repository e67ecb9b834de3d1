"""Drives a model through the compiled steps of a small runner, and remembers the logits."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from halfmoon.models.llama import Llama
from halfmoon.runner.batch import Chunk, DecodeRow
from halfmoon.runner.buckets import BucketTable, PrefillBucket
from halfmoon.runner.runner import Runner, RunnerConfig

PAGE_SIZE = 16
BUCKET = PrefillBucket(64, 16)
BUCKETS = BucketTable((BUCKET,), (1,), (1,))
PAGES = 24
MAX_MODEL_LEN = 192

Logits = NDArray[np.float32]


class Stepper:
    """Prompts through chunks, tokens through decode steps; each sequence has pages of its own, drawn at random."""

    def __init__(self, model: Llama) -> None:
        geometry = model.config.geometry(PAGE_SIZE, "float32")
        self._runner = Runner(model, RunnerConfig(geometry, PAGES, MAX_MODEL_LEN, BUCKETS))
        self._runner.compile_all()
        self._random = np.random.RandomState(0)

    def prefilled(self, prompt: Sequence[int], chunk: int) -> Logits:
        """Logits [vocab] that follow a prompt computed in chunks of so many tokens."""
        pages, rows = self._pages(), []
        for start in range(0, len(prompt), chunk):
            rows = self._prefill([Chunk(prompt[start : start + chunk], start, pages, wants_logits=True)])
        return rows[0]

    def packed(self, prompts: Sequence[Sequence[int]]) -> list[Logits]:
        """Logits that follow each of several prompts, all computed in one step."""
        pages = self._pages()
        share = len(pages) // len(prompts)
        return self._prefill(
            [
                Chunk(prompt, 0, pages[index * share : (index + 1) * share], wants_logits=True)
                for index, prompt in enumerate(prompts)
            ]
        )

    def decoded(self, tokens: Sequence[int], prompt: int) -> dict[int, Logits]:
        """Logits by position, where the first `prompt` tokens are prefilled and each later one is a decode step."""
        pages = self._pages()
        for start in range(0, prompt, BUCKET.tokens):
            self._prefill([Chunk(tokens[start : min(prompt, start + BUCKET.tokens)], start, pages, wants_logits=False)])
        return {
            position: np.asarray(self._runner.decode([DecodeRow(tokens[position], position, pages)]))[0]
            for position in range(prompt, len(tokens))
        }

    def _prefill(self, chunks: list[Chunk]) -> list[Logits]:
        result = self._runner.prefill(chunks, BUCKET)
        logits = np.asarray(result.logits)
        return [logits[result.rows[index]] for index in range(len(chunks)) if index in result.rows]

    def _pages(self) -> list[int]:
        """Pages of a whole sequence; they still hold what earlier ones left there."""
        return [int(page) for page in 1 + self._random.permutation(PAGES)[: MAX_MODEL_LEN // PAGE_SIZE]]
