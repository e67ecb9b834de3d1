"""An argument parser whose help is a page to work from and whose errors are one line."""

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction["Parser"]

Run = Callable[[argparse.Namespace], int]
"""Carries out a command and returns the exit status."""

EXIT_USAGE = 2
"""Exit status for wrong flags."""


class HelpPage(argparse.RawDescriptionHelpFormatter):
    """Keeps examples as written and shows every default that says something."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = (None, False, argparse.SUPPRESS)
        if action.help is None or action.default in silent or not action.option_strings or "default" in action.help:
            return action.help
        return f"{action.help} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """Parser of the command and of its subcommands."""

    def error(self, message: str) -> NoReturn:
        """One line on stderr, exit status 2."""
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


def add_command(subparsers: "Subparsers", name: str, summary: str, *, examples: str, run: Run) -> Parser:
    """A subcommand: `summary` is its line in the list of commands and the first line of its own page."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"examples:\n{examples}",
        formatter_class=HelpPage,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser
