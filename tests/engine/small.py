"""An engine core over a small random model, driven step by step, and what its events amount to."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halfmoon.cache.hashing import cache_salt
from halfmoon.engine.core import EngineCore
from halfmoon.engine.pace import Pace
from halfmoon.engine.request import (
    Ended,
    EngineRequest,
    Event,
    PagesReady,
    PromptScored,
    Started,
    Task,
    Tokens,
)
from halfmoon.errors import HalfmoonError
from halfmoon.models.llama import Llama
from halfmoon.request import FinishReason, OutputToken, PositionLogprobs, SamplingParams
from halfmoon.runner.buckets import BucketTable, PrefillBucket
from halfmoon.runner.runner import Runner, RunnerConfig

PAGE_SIZE = 16
BUCKETS = BucketTable((PrefillBucket(16, 8), PrefillBucket(64, 16)), (1, 4, 8), (1, 4))
SALT = cache_salt("small", "float32", PAGE_SIZE)
END_ID = 7
MAX_MODEL_LEN = 256


def make_runner(model: Llama, pages: int = 64) -> Runner:
    """A compiled runner."""
    geometry = model.config.geometry(PAGE_SIZE, "float32")
    runner = Runner(model, RunnerConfig(geometry, pages, MAX_MODEL_LEN, BUCKETS))
    runner.compile_all()
    return runner


def make_core(runner: Runner, *, pages: int | None = None, pace: Pace | None = None) -> EngineCore:
    """A core with an empty cache over a runner that may have served others; `pages` makes its pool smaller."""
    return EngineCore(runner, end_ids=[END_ID], salt=SALT, pages=pages, pace=pace)


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Random token ids, without the end token."""
    ids = np.random.RandomState(seed).randint(8, 300, length)
    return tuple(int(each) for each in ids)


@dataclass(slots=True)
class Outcome:
    """All that one request gave."""

    request: EngineRequest
    started: list[Started] = field(default_factory=list)
    tokens: list[OutputToken] = field(default_factory=list)
    pages: dict[int, NDArray[np.generic]] = field(default_factory=dict)
    prompt_logprobs: tuple[PositionLogprobs, ...] = ()
    ended: bool = False
    error: HalfmoonError | None = None

    def take(self, event: Event) -> None:
        """A sink."""
        assert not self.ended, f"{event} came after the end"
        match event:
            case Started():
                self.started.append(event)
            case Tokens():
                self.tokens.extend(event.tokens)
            case PagesReady():
                for array, count in event.blocks:
                    for block in np.asarray(array)[:count]:
                        assert len(self.pages) == event.first or len(self.pages) > event.first
                        self.pages[len(self.pages)] = block.copy()
            case PromptScored():
                self.prompt_logprobs = event.entries
            case Ended():
                self.ended, self.error = True, event.error
            case _:
                pass

    def ids(self, choice: int = 0) -> list[int]:
        """Token ids of one choice; their positions must be 0, 1, 2, ..."""
        mine = [token for token in self.tokens if token.choice == choice]
        first = 1 if self.request.task is Task.ATTACH else 0
        assert [token.position for token in mine] == list(range(first, first + len(mine)))
        assert all(token.finish is None for token in mine[:-1])
        return [token.token_id for token in mine]

    def finish(self, choice: int = 0) -> FinishReason | None:
        """Why a choice ended."""
        return [token for token in self.tokens if token.choice == choice][-1].finish


_numbers = iter(range(1_000_000))


def submit(
    core: EngineCore,
    ids: tuple[int, ...],
    params: SamplingParams,
    task: Task = Task.GENERATE,
    *,
    publish: bool = False,
    priority: int = 0,
) -> Outcome:
    """Submits and returns where the events will be."""
    request = EngineRequest(f"r{next(_numbers)}", ids, params, task, priority, publish)
    outcome = Outcome(request)
    core.submit(request, outcome.take)
    flush(core)
    return outcome


def flush(core: EngineCore) -> None:
    """Hands out the events so far."""
    events, core.outbox = core.outbox, []
    for sink, event in events:
        sink(event)


def run(core: EngineCore, *outcomes: Outcome, steps: int = 2000) -> None:
    """Steps until all are over, and checks that nothing is left of them."""
    for _ in range(steps):
        if all(outcome.ended for outcome in outcomes):
            break
        core.step()
        flush(core)
    assert all(outcome.ended for outcome in outcomes), "the engine made no progress"
    core.check()


def generate(core: EngineCore, ids: tuple[int, ...], params: SamplingParams) -> Outcome:
    """One request alone, to its end."""
    outcome = submit(core, ids, params)
    run(core, outcome)
    assert outcome.error is None
    return outcome


def greedy(max_tokens: int, **more: object) -> SamplingParams:
    """Greedy parameters past the end token."""
    return SamplingParams(max_tokens, temperature=0.0, ignore_eos=True, **more)  # type: ignore[arg-type]
