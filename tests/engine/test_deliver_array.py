"""Pages of an ATTACH that come in arrays on the device, as another engine's device gathered them."""

import jax

from halfmoon.engine.core import EngineCore
from halfmoon.engine.request import EngineRequest, Event, PagesReady, Task
from halfmoon.runner.runner import Runner
from tests.engine.small import Outcome, flush, generate, greedy, make_core, prompt, run, submit

IDS = prompt(75, 9)
Arrays = list[tuple[int, int, jax.Array]]


def published(runner: Runner) -> tuple[Outcome, Arrays]:
    """What a prefill gave, and its arrays: (first page, pages that count, array)."""
    core, arrays = make_core(runner), Arrays()
    outcome = Outcome(EngineRequest("published", IDS, greedy(4), Task.PREFILL, publish=True))

    def take(event: Event) -> None:
        outcome.take(event)
        if isinstance(event, PagesReady):
            first = event.first
            for blocks, count in event.blocks:
                arrays.append((first, count, blocks))
                first += count

    core.submit(outcome.request, take)
    run(core, outcome)
    return outcome, arrays


def attaching(core: EngineCore) -> Outcome:
    """A request that waits for its pages."""
    outcome = submit(core, IDS, greedy(4), Task.ATTACH)
    core.step()
    flush(core)
    return outcome


def test_pages_from_the_device_give_the_tokens_of_an_unsplit_run(runner: Runner) -> None:
    first, arrays = published(runner)
    core = make_core(runner)
    rest = attaching(core)
    for array in arrays:
        core.deliver_array(rest.request.request_id, *array)
    core.attach(rest.request.request_id, first.tokens)
    run(core, rest)
    assert first.ids() + rest.ids() == generate(make_core(runner), IDS, greedy(4)).ids()
    assert core.counters.blocks_received == 5


def test_pages_that_are_not_awaited_are_left_alone(runner: Runner) -> None:
    """Two pages are in the cache, and may be in use by others: what comes for them is not written."""
    first, arrays = published(runner)
    core = make_core(runner)
    generate(core, IDS[:40] + prompt(20, 3), greedy(2))
    rest = attaching(core)
    assert rest.started[0].missing == (2, 3, 4)
    cached = core.jobs[rest.request.request_id].lead.pages[:2]
    before = [_page(runner, page) for page in cached]
    for at, count, blocks in arrays:
        core.deliver_array(rest.request.request_id, at, count, blocks.at[: max(0, 2 - at)].set(0))
    assert core.counters.blocks_received == 3
    assert [_page(runner, page) for page in cached] == before
    core.attach(rest.request.request_id, first.tokens)
    run(core, rest)
    assert first.ids() + rest.ids() == generate(make_core(runner), IDS, greedy(4)).ids()


def test_pages_of_a_request_that_has_ended_are_dropped(runner: Runner) -> None:
    _, arrays = published(runner)
    core = make_core(runner)
    rest = attaching(core)
    core.abort(rest.request.request_id)
    core.deliver_array(rest.request.request_id, *arrays[0])
    run(core, rest)
    assert core.counters.blocks_received == 0


def _page(runner: Runner, page: int) -> bytes:
    ((blocks, _),) = runner.gather_pages([page])
    return bytes(jax.device_get(blocks)[0].tobytes())
