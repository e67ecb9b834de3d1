"""`halfmoon serve` refuses what cannot work in one line, before it starts anything."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE, ROOT


def refusal(*arguments: str) -> str:
    """The one line on stderr with which `halfmoon serve` ends."""
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", "serve", "--port", "0", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("halfmoon: ")
    return line


def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert f"127.0.0.1:{port} (Address already in use)" in refusal("--port", port)
        assert "choose another --router-port" in refusal("--router-port", port)


def test_one_port_for_two_programs() -> None:
    assert "both 9000" in refusal("--port", "9000", "--router-port", "9000")


def test_address_of_another_machine() -> None:
    assert "192.0.2.1" in refusal("--host", "192.0.2.1")


def test_missing_model() -> None:
    assert "/no/such/model" in refusal("/no/such/model")


def test_damaged_file(tmp_path: Path) -> None:
    file = tmp_path / "damaged.gguf"
    file.write_bytes(b"not a model at all")
    assert str(file) in refusal(str(file))


def test_truncated_file(default_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "truncated.gguf"
    file.write_bytes(default_model.read_bytes()[: 50 << 20])
    assert str(file) in refusal(str(file))


def test_damaged_weights(weights_alone: Path) -> None:
    file = weights_alone / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert str(file) in refusal(str(weights_alone))


def test_model_without_a_tokenizer(weights_alone: Path) -> None:
    assert "tokenizer" in refusal(str(weights_alone))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}, "GPT2LMHeadModel is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
    ],
)
def test_unsupported_model(changes: dict[str, object], said: str, weights_alone: Path) -> None:
    config = weights_alone / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **changes}))
    assert said in refusal(str(weights_alone))


def test_too_little_memory(default_model: Path) -> None:
    line = refusal(str(default_model), "--kv-memory", "900TiB", "--prefill", "2")
    assert "too little memory: 3 worker(s) need" in line
    assert "this would fit: --kv-memory " in line


def test_too_little_memory_for_one_context(default_model: Path) -> None:
    line = refusal(str(default_model), "--kv-memory", "100MiB")
    assert "--kv-memory holds 2240 tokens, fewer than the context of 8192" in line
    assert "give --kv-memory 360MiB or more, or --max-model-len 2240 or less" in line
    assert "--host-kv-memory" in refusal(str(default_model), "--host-kv-memory", "100MiB")
    assert refusal(str(default_model), "--kv-memory", "1MiB").endswith("give --kv-memory 360MiB or more")


def test_an_empty_api_key() -> None:
    assert "--api-key is empty" in refusal("--api-key", "")


def test_more_context_than_the_model_has(default_model: Path) -> None:
    assert "model's context of 8192 tokens" in refusal(str(default_model), "--max-model-len", "8193")


def test_flags_that_contradict_each_other() -> None:
    assert "leave out --prefill and --decode" in refusal("--role", "both", "--prefill", "2")
