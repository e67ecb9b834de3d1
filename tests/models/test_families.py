"""The committed reference values belong to the small models as they are made today."""

import numpy as np
import pytest

from tests.models.families import CONTEXT, FAMILIES, VOCABULARY, load_reference, reference_path


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_values_belong_to_the_weights_and_have_full_rows(family: str) -> None:
    cases = load_reference(family)
    assert [len(case["prompt_token_ids"]) for case in cases] == [5, 33, 150]
    for case in cases:
        assert max(case["prompt_token_ids"]) < VOCABULARY
        assert max(case["positions"]) < len(case["prompt_token_ids"]) <= CONTEXT
        assert np.shape(case["logits"]) == (len(case["positions"]), VOCABULARY)


def test_reference_values_stay_small_enough_to_commit() -> None:
    assert sum(reference_path(family).stat().st_size for family in FAMILIES) < 1_000_000
