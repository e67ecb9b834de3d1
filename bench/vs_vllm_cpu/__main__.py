"""`python -m bench.vs_vllm_cpu`: how Halfmoon compares with vLLM's CPU build on this machine."""

import argparse
import signal
import sys
from pathlib import Path

from bench.report import check_writable, write_json
from bench.vs_vllm_cpu import contenders
from bench.vs_vllm_cpu.contenders import Contender
from bench.vs_vllm_cpu.environment import prepare_environment
from bench.vs_vllm_cpu.folders import Folders
from bench.vs_vllm_cpu.model import ModelCost, export_model
from bench.vs_vllm_cpu.plan import FULL, QUICK
from bench.vs_vllm_cpu.runs import compare
from bench.vs_vllm_cpu.text import render
from halfmoon.errors import HalfmoonError

RUNS = 3
SERVERS = ("halfmoon", "vllm", "vllm-all-cores")


def main() -> int:
    """Prepares what is missing, measures, reports. Returns the exit status."""
    args = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.json:
            check_writable(args.json)
        folders = Folders.in_cache()
        chosen = _contenders(args.servers, folders)
        if args.prepare:
            return 0
        cost = ModelCost.read(folders.model)
        phases, runs = (QUICK, 1) if args.quick else (FULL, args.runs)
        comparison = compare(chosen, phases, cost, folders, runs=runs)
        print(render(comparison))
        if args.json:
            write_json(comparison, args.json)
    except HalfmoonError as error:
        print(f"vs_vllm_cpu: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.vs_vllm_cpu", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all measurements here")
    parser.add_argument("--runs", metavar="N", type=int, default=RUNS, choices=range(1, 100), help="alternating runs")
    parser.add_argument("--quick", action="store_true", help="one run with fewer requests")
    parser.add_argument("--prepare", action="store_true", help="set up vLLM and the weights, measure nothing")
    parser.add_argument(
        "--servers",
        metavar="NAME",
        nargs="+",
        choices=SERVERS,
        default=SERVERS,
        help=f"which to measure (default: {' '.join(SERVERS)}); vllm alone keeps a core for its scheduler",
    )
    return parser


def _contenders(names: list[str], folders: Folders) -> list[Contender]:
    model = export_model(folders.model)
    chosen = []
    for name in SERVERS:
        if name not in names:
            continue
        if name == "halfmoon":
            chosen.append(contenders.halfmoon(model))
        else:
            command = prepare_environment(folders.environment)
            chosen.append(contenders.vllm(model, command, folders, all_cores=name == "vllm-all-cores"))
    return chosen


if __name__ == "__main__":
    sys.exit(main())
