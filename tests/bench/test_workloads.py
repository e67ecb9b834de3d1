"""Prompts: random ones, of a file, of a trace."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.levels import poisson_arrivals
from bench.workloads import PromptFile, RandomPrompts, Trace
from halfmoon.errors import ConfigError

ROWS = [
    {"timestamp": 0, "input_length": 1100, "output_length": 10, "hash_ids": [0, 1, 2]},
    {"timestamp": 500, "input_length": 1300, "output_length": 1, "hash_ids": [0, 1, 3]},
    {"timestamp": 3000, "input_length": 600, "output_length": 7, "hash_ids": [4, 5]},
]


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """A small trace."""
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_random_prompts_have_their_lengths_and_ids_of_the_vocabulary() -> None:
    for request in RandomPrompts(100, 7, vocab_size=500).requests(0, 5):
        assert len(request.prompt) == 100
        assert all(isinstance(token, int) and 0 <= token < 500 for token in request.prompt)
        assert (request.max_tokens, request.exact) == (7, True)


def test_the_same_seed_gives_the_same_prompts_another_series_others() -> None:
    workload = RandomPrompts(50, 1, vocab_size=500, seed=3)
    assert workload.requests(0, 4) == workload.requests(0, 4)
    prompts = [request.prompt for series in (0, 1) for request in workload.requests(series, 4)]
    assert len({tuple(prompt[:5]) for prompt in prompts}) == 8


def test_without_a_vocabulary_random_prompts_are_words() -> None:
    (request,) = RandomPrompts(30, 1, vocab_size=None).requests(0, 1)
    assert isinstance(request.prompt, str)
    assert len(request.prompt.split()) == 30


def test_a_file_of_json_lines_gives_prompts_and_lengths(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Hi", "max_tokens": 3}\n\n{"prompt": [1, 2]}\n')
    workload = PromptFile.read(path, max_tokens=9)
    assert workload.size == 2
    got = [(request.prompt, request.max_tokens) for request in workload.requests(0, 3)]
    assert got == [("Hi", 3), ([1, 2], 9), ("Hi", 3)]


def test_a_file_of_lines_gives_a_prompt_a_line_and_goes_on_in_the_next_series(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("one\ntwo\nthree\n")
    workload = PromptFile.read(path, max_tokens=9)
    assert [request.prompt for request in workload.requests(1, 2)] == ["three", "one"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"prompt": "x"}\n{"prompt": 5}\n', "line 2"),
        ("b.txt", "\n", "no prompts"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        PromptFile.read(tmp_path / name, max_tokens=1)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.txt"):
        PromptFile.read(tmp_path / "nowhere.txt", max_tokens=1)


def test_equal_blocks_of_a_trace_are_equal_tokens(trace_file: Path) -> None:
    first, second, third = Trace.read(trace_file, vocab_size=1000).requests(0, 3)
    assert [len(request.prompt) for request in (first, second, third)] == [1100, 1300, 600]
    assert first.prompt[:1024] == second.prompt[:1024]
    assert first.prompt[1024:1034] != second.prompt[1024:1034]
    assert first.prompt[:10] != third.prompt[:10]


def test_a_trace_scales_times_and_lengths_and_keeps_shared_prefixes(trace_file: Path) -> None:
    trace = Trace.read(trace_file, vocab_size=1000, time_scale=0.1, length_scale=0.1)
    first, second, third = trace.requests(0, 3)
    assert [request.at for request in (first, second, third)] == pytest.approx([0.0, 0.05, 0.3])
    assert [len(request.prompt) for request in (first, second, third)] == [110, 130, 60]
    assert [request.max_tokens for request in (first, second, third)] == [1, 1, 1]
    assert first.prompt[:102] == second.prompt[:102]


def test_a_trace_gives_its_first_rows(trace_file: Path) -> None:
    assert Trace.read(trace_file, vocab_size=1000, max_requests=2).size == 2


def test_a_row_with_too_few_blocks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(ROWS[0] | {"hash_ids": [1]}) + "\n")
    with pytest.raises(ConfigError, match="line 1: 1100 prompt tokens have 3 blocks, not 1"):
        Trace.read(path, vocab_size=1000)


def test_poisson_arrivals_have_the_rate_and_exponential_gaps() -> None:
    arrivals = poisson_arrivals(5.0, 20_000, seed=1)
    gaps = np.diff([0.0, *arrivals])
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert gaps.std() == pytest.approx(0.2, rel=0.05)
    assert arrivals == poisson_arrivals(5.0, 20_000, seed=1)
    assert arrivals != poisson_arrivals(5.0, 20_000, seed=2)
