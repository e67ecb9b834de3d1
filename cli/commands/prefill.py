"""`halfmoon prefill`: a worker that reads prompts."""

from typing import TYPE_CHECKING

from cli.commands.worker_flags import add_worker

if TYPE_CHECKING:
    from cli.parser import Subparsers


def add_to(subparsers: "Subparsers") -> None:
    """Adds the command."""
    add_worker(subparsers, "prefill", "run a prefill worker: computes prompts and hands out their KV", port=7100)
