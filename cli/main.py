"""The `halfmoon` command."""

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from cli import environment
from cli.commands import bench, decode, gateway, models, prefill, router, serve
from cli.parent_death import end_with_parent
from cli.parser import HelpPage, Parser
from halfmoon.errors import HalfmoonError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

_DESCRIPTION = "Halfmoon serves language models with prefill and decode on separate workers."
_EPILOG = """\
`halfmoon serve` runs all programs on this machine; the commands after it run one program each,
for a fleet of your own. Each command has a page of its own: halfmoon COMMAND --help"""


def build_parser() -> Parser:
    """The parser of the command and all subcommands."""
    parser = Parser(
        prog="halfmoon", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=HelpPage, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"halfmoon {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for command in (serve, gateway, router, prefill, decode, models, bench):
        command.add_to(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; what went wrong is one line on stderr. Returns the exit status."""
    end_with_parent()
    environment.prepare()
    args = build_parser().parse_args(argv)
    try:
        status: int = args.run(args)
    except HalfmoonError as error:
        print(f"halfmoon: {error.message}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return status


def _version() -> str:
    try:
        return version("halfmoon")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
