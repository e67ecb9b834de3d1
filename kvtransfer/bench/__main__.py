"""`python -m kvtransfer.bench`: measures the transports of this machine; reports to stdout, progress to stderr."""

import argparse
import json
import sys
from pathlib import Path

from halfmoon.errors import HalfmoonError
from kvtransfer.bench.cases import FULL, QUICK, SINGLE
from kvtransfer.bench.contestants import known
from kvtransfer.bench.report import render, to_json
from kvtransfer.bench.run import run


def main() -> int:
    """The exit status: 1 when the run failed."""
    arguments = _arguments()
    cases = (SINGLE, *(QUICK if arguments.quick else FULL))
    rounds, calls = (5, 300) if arguments.quick else (11, 1000)
    try:
        report = run(cases, rounds=rounds, control_calls=calls, only=arguments.only, say=_say)
    except HalfmoonError as error:
        print(f"the run failed: {error.message}", file=sys.stderr)
        return 1
    print(render(report))
    if arguments.json:
        arguments.json.write_text(json.dumps(to_json(report), indent=1) + "\n", encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kvtransfer.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: about a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    names = [contestant.name for contestant in known()]
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=names,
        metavar="NAME",
        help=f"measure this one (repeatable): {', '.join(names)}",
    )
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
