"""`halfmoon bench`: measures what clients of a server see."""

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from cli import flag_types, flags
from cli.commands.bench_config import DEFAULT_CONCURRENCY, LEAST_REQUESTS, bench_config
from cli.parser import add_command
from halfmoon.errors import UnavailableError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from cli.parser import Subparsers

SUMMARY = "measure the throughput and latency of any OpenAI-compatible server"
EXAMPLES = """\
  halfmoon bench --url http://127.0.0.1:8000 --concurrency 1,2,4,8,16,32 --plot curve.png
  halfmoon bench --url http://127.0.0.1:8000 --request-rate 0.5,1,2 --num-requests 100 --slo-ttft 1 --slo-tpot 0.1
  halfmoon bench --url http://127.0.0.1:8000 --prompts prompts.jsonl --concurrency 8 --json report.json
  halfmoon bench --url http://127.0.0.1:8000 --trace trace.jsonl --trace-scale-length 0.05 --max-requests 200"""

TRACE_REQUESTS = 1000


def add_to(subparsers: "Subparsers") -> None:
    """Adds the command."""
    parser = add_command(subparsers, "bench", SUMMARY, examples=EXAMPLES, run=run)
    _add_server(parser)
    _add_workload(parser)
    _add_load(parser)
    _add_report(parser)


def run(args: Namespace) -> int:
    """Measures and reports; the exit status is 0 when at least one request was answered at each level."""
    import uvloop

    from bench.plot import check_plotting, write_plot
    from bench.progress import ConsoleProgress
    from bench.report import check_writable, write_json
    from bench.session import run_bench
    from bench.table import render

    if args.plot:
        check_plotting()
    for path in filter(None, (args.json, args.plot)):
        check_writable(path)
    report = uvloop.run(run_bench(bench_config(args), ConsoleProgress(sys.stderr)))
    print(render(report))
    if args.json:
        write_json(report, args.json)
    if args.plot:
        write_plot(report, args.plot)
    if unanswered := [level.level.label for level in report.levels if level.failed == level.requests]:
        raise UnavailableError(f"no request was answered at {', '.join(unanswered)}")
    return 0


def _add_server(parser: "ArgumentParser") -> None:
    group = parser.add_argument_group("server")
    group.add_argument("--url", metavar="URL", required=True, help="base address, with or without /v1")
    group.add_argument("--model", metavar="NAME", help="model to ask for (default: the first one served)")
    flags.add_api_key(group)
    group.add_argument("--dtype", metavar="NAME", help="the server's dtype, for the report (default: what it tells)")
    group.add_argument(
        "--timeout", metavar="SECONDS", type=flag_types.seconds, default=600.0, help="longest time for one request"
    )


def _add_workload(parser: "ArgumentParser") -> None:
    group = parser.add_argument_group("workload")
    group.add_argument("--input-len", metavar="TOKENS", type=flag_types.positive, default=128, help="of random prompts")
    group.add_argument("--output-len", metavar="TOKENS", type=flag_types.positive, default=64, help="of each answer")
    group.add_argument("--text", action="store_true", help="random words, for servers that take no token ids")
    group.add_argument(
        "--vocab-size",
        metavar="N",
        type=flag_types.positive,
        help="of random token ids (default: what the server tells)",
    )
    source = group.add_mutually_exclusive_group()
    source.add_argument("--prompts", metavar="FILE", type=Path, help="JSON lines (.jsonl), or a plain prompt a line")
    source.add_argument("--trace", metavar="FILE", type=Path, help="recorded times, lengths and shared prefixes")
    for name, what in (("time", "times"), ("length", "lengths")):
        help_text = f"multiplies the trace's {what}"
        group.add_argument(f"--trace-scale-{name}", metavar="X", type=flag_types.factor, default=1.0, help=help_text)
    group.add_argument(
        "--max-requests",
        metavar="N",
        type=flag_types.positive,
        default=TRACE_REQUESTS,
        help="of a trace, from its start",
    )
    group.add_argument("--temperature", metavar="T", type=flag_types.not_negative, default=0.0, help="of sampling")
    group.add_argument("--seed", metavar="N", type=flag_types.natural, default=0, help="of prompts and arrivals")


def _add_load(parser: "ArgumentParser") -> None:
    group = parser.add_argument_group("load", "a level for each number; a trace has its own times unless one is given")
    mode = group.add_mutually_exclusive_group()
    mode.add_argument(
        "--concurrency",
        metavar="N,...",
        type=flag_types.several(flag_types.positive),
        help=f"closed loop: so many clients (default: {','.join(map(str, DEFAULT_CONCURRENCY))})",
    )
    mode.add_argument(
        "--request-rate",
        metavar="X,...",
        type=flag_types.several(flag_types.factor),
        help="open loop: Poisson arrivals a second",
    )
    count = group.add_mutually_exclusive_group()
    count.add_argument(
        "--num-requests",
        metavar="N",
        type=flag_types.positive,
        help=f"of each level (default: all of a file or trace, else {LEAST_REQUESTS}, or 3 a client)",
    )
    count.add_argument(
        "--requests-per-client", metavar="N", type=flag_types.positive, help="of each closed level, instead of that"
    )
    group.add_argument(
        "--warm-up", metavar="N", type=flag_types.natural, default=2, help="requests before each level, not counted"
    )


def _add_report(parser: "ArgumentParser") -> None:
    group = parser.add_argument_group("report")
    group.add_argument("--slo-ttft", metavar="SECONDS", type=flag_types.seconds, help="good answers begin within this")
    group.add_argument("--slo-tpot", metavar="SECONDS", type=flag_types.seconds, help="and take this a token at most")
    group.add_argument("--json", metavar="FILE", type=Path, help="write the report here as JSON")
    group.add_argument("--plot", metavar="FILE.png", type=Path, help="write latency over throughput (halfmoon[plot])")
