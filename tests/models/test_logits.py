"""Every family computes, page by page, the logits that Hugging Face transformers computes.

Tolerance: 1e-4 of the largest logit of a row. The models are read from GGUF files; `test_loading.py` shows that other
formats give the same model.
"""

from pathlib import Path

import numpy as np
import pytest

from halfmoon.models import load_model
from halfmoon.weights import open_checkpoint
from tests.models.families import FAMILIES, ReferenceCase, load_reference, write_gguf
from tests.models.stepping import Logits, Stepper

TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def cases(family: str) -> list[ReferenceCase]:
    return load_reference(family)


@pytest.fixture(scope="module")
def stepper(family: str, tmp_path_factory: pytest.TempPathFactory) -> Stepper:
    path: Path = write_gguf(family, tmp_path_factory.mktemp("gguf") / "model.gguf")
    return Stepper(load_model(open_checkpoint(path)))


def assert_close(actual: Logits, expected: list[float]) -> None:
    wanted = np.asarray(expected)
    error = np.abs(actual - wanted).max() / np.abs(wanted).max()
    assert error < TOLERANCE, f"relative error {error:.1e}"


@pytest.mark.parametrize("chunk", [16, 48, 64])
def test_a_prompt_computed_in_chunks(stepper: Stepper, cases: list[ReferenceCase], chunk: int) -> None:
    for case in cases:
        for position, expected in zip(case["positions"], case["logits"], strict=True):
            assert_close(stepper.prefilled(case["prompt_token_ids"][: position + 1], chunk), expected)


def test_tokens_computed_one_by_one(stepper: Stepper, cases: list[ReferenceCase]) -> None:
    for case, prompt in zip(cases, (0, 7, 60), strict=True):
        logits = stepper.decoded(case["prompt_token_ids"], prompt)
        for position, expected in zip(case["positions"], case["logits"], strict=True):
            if position >= prompt:
                assert_close(logits[position], expected)


def test_prompts_computed_together(stepper: Stepper, cases: list[ReferenceCase]) -> None:
    together = stepper.packed([case["prompt_token_ids"] for case in cases[:2]])
    for logits, case in zip(together, cases[:2], strict=True):
        assert_close(logits, case["logits"][-1])
