"""`halfmoon decode`: a worker that writes answers."""

from typing import TYPE_CHECKING

from cli.commands.worker_flags import add_worker

if TYPE_CHECKING:
    from cli.parser import Subparsers


def add_to(subparsers: "Subparsers") -> None:
    """Adds the command."""
    add_worker(subparsers, "decode", "run a decode worker: pulls a prompt's KV and writes the answer", port=7200)
