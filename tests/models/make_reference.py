"""Makes `reference/<family>.json`: logits of the small models in `families.py`, computed by Hugging Face transformers.

Run from the root of the repository, in an environment that has torch and transformers (Halfmoon needs neither):

    python -m tests.models.make_reference

The committed files were made with transformers 5.19.0 and torch 2.13.0 (CPU, float32, eager attention); each file
names its versions. Make them again only when `families.py` changes, and look at the difference.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]

from tests.models.families import FAMILIES, VOCABULARY, ReferenceCase, reference_path, weights_digest, write_checkpoint

POSITIONS = {5: range(5), 33: (0, 7, 15, 16, 31, 32), 150: (0, 63, 64, 65, 100, 127, 128, 149)}
"""Length of each prompt, and the positions whose logits are kept: around the edges of pages and chunks."""


def main() -> None:
    """Write the reference values of all families."""
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            model = _load(write_checkpoint(family, Path(folder)))
        content = {
            "made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, CPU",
            "weights_sha256": weights_digest(family),
            "cases": [_case(model, family, length) for length in POSITIONS],
        }
        reference_path(family).write_text(json.dumps(content, separators=(",", ":")) + "\n")


def _load(folder: Path) -> torch.nn.Module:
    """The model, after a check that every tensor of the folder is used and none is made up."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values()), report
    return model.eval()


def _case(model: torch.nn.Module, family: str, length: int) -> ReferenceCase:
    random = np.random.RandomState(length + 7 * FAMILIES.index(family))
    prompt = random.randint(0, VOCABULARY, length).tolist()
    positions = list(POSITIONS[length])
    with torch.inference_mode():
        logits = model(torch.tensor([prompt])).logits[0, positions].numpy()
    rows = [[float(f"{value:.8g}") for value in row] for row in logits]
    return {"prompt_token_ids": prompt, "positions": positions, "logits": rows}


if __name__ == "__main__":
    main()
