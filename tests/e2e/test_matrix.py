"""{GGUF, safetensors} x {split, unsplit, two of each} x {1, 32 requests at once}, and seeded sampling over all."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.main import main
from tests.e2e import reference
from tests.e2e.fleet import serving

CASES = reference.cases()
SHAPES: dict[str, tuple[str, ...]] = {
    "split": ("--split-threshold", "0"),
    "unsplit": ("--role", "both"),
    "two of each": ("--prefill", "2", "--decode", "2", "--split-threshold", "0", "--kv-memory", "512MiB"),
}
SAMPLED = {"n": 4, "seed": -3, "temperature": 0.9, "top_p": 0.95, "max_tokens": 16, "ignore_eos": True}

_sampled: dict[str, list[list[int]]] = {}
"""What each server sampled, by its name: all must be equal."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> dict[str, Path]:
    """The default model in both forms; the folder is made by `halfmoon models export`."""
    folder = tmp_path_factory.mktemp("export") / "SmolLM2"
    assert main(["models", "export", str(default_model), str(folder)]) == 0
    return {"GGUF": default_model, "safetensors": folder}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("form", "shape"),
    [
        *(("GGUF", shape) for shape in SHAPES),
        ("safetensors", "split"),
        pytest.param("safetensors", "unsplit", marks=pytest.mark.slow),
        pytest.param("safetensors", "two of each", marks=pytest.mark.slow),
    ],
)
async def test_tokens_are_equal_whatever_serves_them(
    models: dict[str, Path], tmp_path: Path, form: str, shape: str
) -> None:
    with serving(tmp_path, str(models[form]), *SHAPES[shape]) as fleet:
        async with httpx.AsyncClient(base_url=fleet.url, limits=httpx.Limits(max_connections=100)) as client:
            for name in reference.THREE:
                case = CASES[name]
                reference.assert_equal(case, await reference.complete(client, **reference.request(case)))
            alone = await _sample(client)
            many = [CASES[reference.THREE[each % 3]] for each in range(31)]
            sampling = asyncio.create_task(_sample(client))
            answers = await asyncio.gather(*(reference.complete(client, **reference.request(case)) for case in many))
            among = await sampling
            for case, answer in zip(many, answers, strict=True):
                reference.assert_equal(case, answer)
    assert among == alone
    _sampled[f"{form} {shape}"] = alone
    assert len({str(each) for each in _sampled.values()}) == 1, _sampled


async def _sample(client: httpx.AsyncClient) -> list[list[int]]:
    body: dict[str, Any] = {**SAMPLED, "prompt": CASES["code"]["prompt_token_ids"], "return_token_ids": True}
    answer = await reference.complete(client, **body)
    choices = [choice["token_ids"] for choice in answer["choices"]]
    assert len({str(each) for each in choices}) == 4
    return choices
