"""`halfmoon models`: looks at models, fetches them, and converts."""

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cli import environment, flags
from cli.parser import HelpPage, Parser, add_command

if TYPE_CHECKING:
    from cli.parser import Subparsers

SUMMARY = "list, fetch, describe and export models"
EXPORT_DTYPES = ("float32", "float16", "bfloat16")
EXAMPLES = """\
  halfmoon models list
  halfmoon models fetch
  halfmoon models fetch Qwen/Qwen3-0.6B
  halfmoon models describe ./Qwen3-0.6B
  halfmoon models export model.gguf ./model-folder --dtype bfloat16"""


def add_to(subparsers: "Subparsers") -> None:
    """Adds the command and what it can do."""
    parser = add_command(subparsers, "models", SUMMARY, examples=EXAMPLES, run=_list)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, parser_class=Parser)
    for name, summary, action in (
        ("list", "list the models that are cached", _list),
        ("fetch", "fetch a model of the hub, or the default one, unless it is there", _fetch),
        ("describe", "say what a model is, and whether it can be served", _describe),
        ("export", "write a model as a Hugging Face folder with safetensors", _export),
    ):
        page = actions.add_parser(name, help=summary, description=summary, formatter_class=HelpPage, allow_abbrev=False)
        page.set_defaults(run=action)
        if name != "list":
            flags.add_model(page)
        if name == "export":
            page.add_argument("folder", metavar="FOLDER", type=Path, help="folder to write; made when missing")
            page.add_argument("--dtype", choices=EXPORT_DTYPES, help="type of the weights (default: as stored)")


def _list(_args: Namespace) -> int:
    from halfmoon.weights.cache_folder import cache_folder
    from halfmoon.weights.default_model import DEFAULT_MODEL, cached_model
    from halfmoon.weights.hub import cached_hub_models

    cached, folder = cached_model(), cache_folder()
    state = f"at {cached}" if cached else "not fetched yet: halfmoon models fetch"
    print(f"{DEFAULT_MODEL.name} (the default): {state}")
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path != cached and (path.suffix == ".gguf" or (path / "config.json").is_file()):
            print(f"{path.name}: at {path}")
    for name, path in cached_hub_models().items():
        print(f"{name} (of the hub): at {path}")
    return 0


def _fetch(args: Namespace) -> int:
    print(flags.resolve(args))
    return 0


def _describe(args: Namespace) -> int:
    environment.prepare_jax()
    from cli.preflight.model import inspect_model
    from halfmoon.weights import describe, open_checkpoint

    path = flags.resolve(args)
    facts = dict(describe(open_checkpoint(path)))
    facts["chat_template"] = "yes" if inspect_model(path).chats else "no"
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {f'{value:,}' if isinstance(value, int) else value}")
    return 0


def _export(args: Namespace) -> int:
    from halfmoon.text import save_gguf_text
    from halfmoon.weights import ConsoleProgress, export_safetensors, open_checkpoint

    progress = ConsoleProgress(sys.stderr)
    path = flags.resolve(args)
    add_files = None if path.is_dir() else partial(save_gguf_text, path)
    export_safetensors(open_checkpoint(path), args.folder, dtype=args.dtype, progress=progress, add_files=add_files)
    print(args.folder)
    return 0
