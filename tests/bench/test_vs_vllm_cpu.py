"""The comparison of servers, with fake ones."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from bench.machine import describe_machine
from bench.vs_vllm_cpu import runs
from bench.vs_vllm_cpu.contenders import Contender
from bench.vs_vllm_cpu.environment import name_platform
from bench.vs_vllm_cpu.folders import VLLM_VERSION, Folders
from bench.vs_vllm_cpu.limits import Limits, measure_limits
from bench.vs_vllm_cpu.model import ModelCost
from bench.vs_vllm_cpu.plan import PREFILL, Phase
from bench.vs_vllm_cpu.results import Comparison, Medians, Shares
from bench.vs_vllm_cpu.serving import serving
from bench.vs_vllm_cpu.steps import run_step, started
from bench.vs_vllm_cpu.text import render
from halfmoon.errors import UnavailableError
from tests.bench.fake_server import VOCAB

ROOT = Path(__file__).parents[2]
COST = ModelCost(vocab_size=VOCAB, layer_weights=1_000_000, head_weights=100_000, attention_width=64)
LIMITS = Limits(flops=1e11, bytes_per_second=2e10)


def contender(name: str, *arguments: str) -> Contender:
    """A fake server as a program."""
    command = (sys.executable, "-m", "tests.bench.fake_program", *arguments)
    return Contender(name, command, "/v1/models", {"PYTHONPATH": str(ROOT)})


def folders_in(root: Path) -> Folders:
    """Empty ones."""
    return Folders(root / "env", root / "model", root / "logs", root / "compiled")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two runs of a quick and a slow server on a machine of known limits."""
    phases = (Phase("concurrency 1", 16, 10, 2, 1), Phase(PREFILL.name, 16, 1, 4, 2))
    servers = (contender("halfmoon", "--gap", "0.02"), contender("slow", "--gap", "0.04"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "wait_for_quiet", lambda: 0.0)
        patch.setattr(runs, "measure_limits", lambda: LIMITS)
        return runs.compare(servers, phases, COST, folders_in(tmp_path_factory.mktemp("bench")), runs=2)


def test_servers_take_turns_and_medians_show_their_speeds(comparison: Comparison) -> None:
    order = [(entry.run, entry.contender) for entry in comparison.measured if entry.phase.name == "concurrency 1"]
    assert order == [(1, "halfmoon"), (1, "slow"), (2, "halfmoon"), (2, "slow")]
    quick, slow = (entry for entry in comparison.medians if entry.phase == "concurrency 1")
    assert quick.output_tokens_per_second / slow.output_tokens_per_second == pytest.approx(2.0, rel=0.2)
    assert (quick.failed, slow.failed) == (0, 0)


def test_the_text_has_ratios_and_shares(comparison: Comparison) -> None:
    text = render(comparison)
    (slow,) = [line for line in text.splitlines() if " slow " in line and "concurrency" not in line][:1]
    assert "x" in slow
    assert "matrix product 100 GFLOP/s, memory stream 20.0 GB/s" in text
    assert "halfmoon reaches" in text
    assert "warning" not in text


def test_shares_are_of_the_machines_limits() -> None:
    prefill = Medians("a", PREFILL.name, 1000.0, 8.0, 0.1, None, 0)
    single = Medians("a", "concurrency 1", 100.0, 50.0, 0.1, 0.02, 0)
    shares = Shares.of(prefill, single, COST, LIMITS)
    flops = 2 * (1_000_000 * 128 + 100_000) + 2 * 64 * 128 * 128
    assert shares.prefill == pytest.approx(1000 * flops / 128 / 1e11)
    assert shares.decode == pytest.approx(4 * 1_100_000 / 0.02 / 2e10)


def test_limits_of_runs_are_their_median() -> None:
    limits = [Limits(1.0, 5.0), Limits(3.0, 4.0), Limits(2.0, 9.0)]
    assert Comparison.of([], limits, COST, started="", machine=describe_machine()).limits == Limits(2.0, 5.0)


def test_a_server_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    with (
        pytest.raises(UnavailableError, match=r"ended with status 1:(.|\n)*no memory left"),
        serving(contender("dying", "--die"), tmp_path),
    ):
        pass


def test_a_process_ends_with_all_that_it_started(tmp_path: Path) -> None:
    code = "import subprocess; child = subprocess.Popen(['sleep', '60']); print('up', flush=True); child.wait()"
    log = tmp_path / "log"
    with log.open("wb") as output, started([sys.executable, "-c", code], output.fileno()) as process:
        deadline = time.monotonic() + 20
        while "up" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
    _gone, alive = psutil.wait_procs(children, timeout=10)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


def test_a_step_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"Installing failed with status 3:\n  no such package"):
        run_step("Installing", ["sh", "-c", "echo no such package; exit 3"], tmp_path / "log", seconds=20)


def test_a_step_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="not done after"):
        run_step("Sleeping", ["sleep", "60"], tmp_path / "log", seconds=0.2)


def test_the_cpu_build_is_named_vllm(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3" / "site-packages"
    source = packages / f"vllm_cpu-{VLLM_VERSION}.dist-info"
    source.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.4\nName: vllm-cpu\nVersion: {VLLM_VERSION}\n\nName: in the text\n"
    (source / "METADATA").write_text(metadata)
    name_platform(packages)
    got = (packages / f"vllm-{VLLM_VERSION}+cpu.dist-info" / "METADATA").read_text()
    assert got == f"Metadata-Version: 2.4\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n\nName: in the text\n"
    assert (source / "METADATA").read_text() == metadata


def test_an_environment_without_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="remove the environment"):
        name_platform(tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_a_models_cost_comes_from_its_files(tmp_path: Path, tied: bool) -> None:
    config = {"vocab_size": 50, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {
        "model.embed_tokens.weight": np.zeros((50, 8), np.float32),
        "model.layers.0.self_attn.q_proj.weight": np.zeros((8, 8), np.float32),
        "model.layers.0.mlp.up_proj.weight": np.zeros((16, 8), np.float32),
        "model.norm.weight": np.zeros(8, np.float32),
    }
    if not tied:
        tensors["lm_head.weight"] = np.zeros((50, 8), np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    cost = ModelCost.read(tmp_path)
    assert cost == ModelCost(vocab_size=50, layer_weights=192, head_weights=400, attention_width=24)
    assert cost.step_bytes == 4 * 592


@pytest.mark.slow
def test_limits_are_those_of_a_computer() -> None:
    limits = measure_limits()
    assert 1e9 < limits.flops < 1e14
    assert 1e8 < limits.bytes_per_second < 1e13
