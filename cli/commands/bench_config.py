"""From the flags of `halfmoon bench` to what is to be measured."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from cli import flags
from halfmoon.errors import ConfigError

if TYPE_CHECKING:
    from bench.levels import Level
    from bench.session import BenchConfig, MakeWorkload

DEFAULT_CONCURRENCY = (1, 2, 4, 8)

LEAST_REQUESTS, REQUESTS_PER_CLIENT = 10, 3


def bench_config(args: Namespace) -> "BenchConfig":
    """Raises ConfigError for files that cannot be used and flags that contradict each other."""
    from bench.session import BenchConfig
    from bench.summary import Objectives

    make, size = _workload(args)
    return BenchConfig(
        url=args.url if "://" in args.url else f"http://{args.url}",
        workload=make,
        levels=tuple(_levels(args, size)),
        model=args.model,
        api_key=flags.api_key(args),
        vocab_size=args.vocab_size,
        dtype=args.dtype,
        warm_up=args.warm_up,
        timeout=args.timeout,
        temperature=args.temperature,
        seed=args.seed,
        objectives=Objectives(args.slo_ttft, args.slo_tpot),
    )


def _workload(args: Namespace) -> tuple["MakeWorkload", int | None]:
    from bench.workloads import PromptFile, RandomPrompts, Trace

    if args.prompts:
        prompts = PromptFile.read(args.prompts, max_tokens=args.output_len)
        return lambda _vocab_size: prompts, prompts.size
    if args.trace:
        if args.text:
            raise ConfigError("--trace needs prompts of token ids: leave out --text")
        trace = Trace.read(
            args.trace,
            vocab_size=0,
            max_requests=args.max_requests,
            time_scale=args.trace_scale_time,
            length_scale=args.trace_scale_length,
            seed=args.seed,
        )
        return lambda vocab_size: replace(trace, vocab_size=vocab_size), trace.size
    words = args.text
    return (
        lambda vocab_size: RandomPrompts(args.input_len, args.output_len, None if words else vocab_size, args.seed),
        None,
    )


def _levels(args: Namespace, size: int | None) -> Iterator["Level"]:
    from bench.levels import Level

    if args.trace and args.num_requests and args.num_requests > args.max_requests:
        raise ConfigError(f"--num-requests {args.num_requests} is more than --max-requests {args.max_requests}")
    if args.requests_per_client and (args.request_rate or (args.trace and not args.concurrency)):
        raise ConfigError("--requests-per-client is for --concurrency: an open loop has no clients that wait")
    if args.request_rate:
        for rate in args.request_rate:
            yield Level(args.num_requests or size or LEAST_REQUESTS, rate=rate)
    elif args.trace and not args.concurrency:
        yield Level(min(args.num_requests or args.max_requests, size or args.max_requests))
    else:
        for clients in args.concurrency or DEFAULT_CONCURRENCY:
            yield Level(_requests(args, clients, size), concurrency=clients)


def _requests(args: Namespace, clients: int, size: int | None) -> int:
    if args.requests_per_client:
        return int(args.requests_per_client) * clients
    return args.num_requests or size or max(LEAST_REQUESTS, REQUESTS_PER_CLIENT * clients)
