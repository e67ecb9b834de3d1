"""`halfmoon bench` as a person uses it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from tests.bench.fake_server import MODEL, Behaviour, FakeServer, serving


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """A quick server."""
    with serving(Behaviour(first=0.01, gap=0.001)) as server:
        yield server


def bench(fake: FakeServer, *arguments: str) -> int:
    """Runs the command against the server."""
    return main(["bench", "--url", fake.url, *arguments])


def test_it_prints_a_table_and_progress(fake: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(fake, "--concurrency", "1,3", "--num-requests", "4", "--slo-ttft", "5") == 0
    told = capsys.readouterr()
    for text in (MODEL, "f00d", "128 random tokens in, 64 tokens out", "goodput/s", "TTFT", "ITL", "end to end"):
        assert text in told.out
    assert [line.split(":")[0] for line in told.err.splitlines()] == ["concurrency 1", "concurrency 3"]


def test_it_writes_json_and_a_plot(fake: FakeServer, tmp_path: Path) -> None:
    files = tmp_path / "report.json", tmp_path / "curve.png"
    assert bench(fake, "--concurrency", "1,2", "--json", str(files[0]), "--plot", str(files[1])) == 0
    report = json.loads(files[0].read_text())
    assert [level["level"]["concurrency"] for level in report["levels"]] == [1, 2]
    assert report["levels"][0]["ttft"]["p50"] >= 0.01
    assert report["machine"]["packages"]["halfmoon"]
    assert files[1].read_bytes().startswith(b"\x89PNG")


def test_requests_are_a_factor_of_the_clients(fake: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert bench(fake, "--concurrency", "2,5", "--requests-per-client", "3", "--json", str(path)) == 0
    assert [level["requests"] for level in json.loads(path.read_text())["levels"]] == [6, 15]


def test_a_trace_is_replayed_at_its_own_times(fake: FakeServer, tmp_path: Path) -> None:
    trace, report = tmp_path / "trace.jsonl", tmp_path / "report.json"
    row = {"input_length": 700, "output_length": 20, "hash_ids": [0, 1]}
    trace.write_text("".join(json.dumps({"timestamp": at, **row}) + "\n" for at in (0, 1000, 3000)))
    scales = ("--trace-scale-time", "0.1", "--trace-scale-length", "0.1")
    assert bench(fake, "--trace", str(trace), *scales, "--warm-up", "0", "--json", str(report)) == 0
    (level,) = json.loads(report.read_text())["levels"]
    assert (level["requests"], level["input_tokens"], level["output_tokens"]) == (3, 210, 6)
    assert level["duration"] >= 0.3


def test_prompts_of_a_file_are_sent_as_text(fake: FakeServer, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Once upon a time\nThe moon\n")
    assert bench(fake, "--prompts", str(prompts), "--output-len", "3", "--request-rate", "50", "--warm-up", "0") == 0
    assert [body["prompt"] for body in fake.bodies[1:]] == ["Once upon a time", "The moon"]
    assert all("ignore_eos" not in body for body in fake.bodies[1:])


def test_text_prompts_on_demand(fake: FakeServer) -> None:
    assert bench(fake, "--text", "--input-len", "9", "--concurrency", "1", "--num-requests", "1") == 0
    assert len(fake.bodies[-1]["prompt"].split()) == 9


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prompts", "/nowhere.txt"), "/nowhere.txt"),
        (("--json", "/nowhere/report.json"), "/nowhere/report.json"),
        (("--request-rate", "1", "--requests-per-client", "2"), "--requests-per-client"),
        (("--model", "other"), "does not serve 'other'"),
    ],
)
def test_what_cannot_work_is_one_line(
    fake: FakeServer, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(fake, *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_plot_without_matplotlib_is_refused_before_anything_is_sent(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert bench(fake, "--plot", "curve.png") == 1
    assert "pip install 'halfmoon[plot]'" in capsys.readouterr().err
    assert fake.bodies == []


def test_a_level_without_an_answer_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Behaviour(fail_every=2)) as fake:
        assert bench(fake, "--concurrency", "1", "--num-requests", "1", "--warm-up", "0") == 1
    told = capsys.readouterr()
    assert "HTTP 503: too busy" in told.out
    assert "no request was answered at concurrency 1" in told.err


def test_ctrl_c_ends_a_run_at_once() -> None:
    with serving(Behaviour(first=30.0)) as fake:
        command = [sys.executable, "-m", "cli.main", "bench", "--url", fake.url, "--concurrency", "2"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while not fake.bodies and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _out, told = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in told
