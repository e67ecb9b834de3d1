"""Flags that several commands share, in groups as the help pages show them."""

import argparse
import os
import sys
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path

from cli import flag_types
from cli.environment import default_dtype
from cli.store_flags import StoreFlags, add_store
from halfmoon.config import DEADLINES, PAGE_SIZE, SPLIT_THRESHOLD
from halfmoon.errors import ConfigError

DTYPES = ("float32", "bfloat16")
TRANSPORTS = ("shm", "tcp")
KNOWN_TRANSPORTS = ("jax", *TRANSPORTS, "mooncake")
KERNELS = ("auto", "xla")
LOOPBACK = "127.0.0.1"
API_KEY_VARIABLE = "HALFMOON_API_KEY"

MODEL_HELP = (
    "Hugging Face folder, GGUF file, or hub model: org/name or org/name:FILE.gguf "
    "(default: SmolLM2-135M-Instruct, fetched once)"
)


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """What every worker is told about its engine; sizes in bytes, None where the worker decides."""

    dtype: str
    max_model_len: int | None
    kv_memory: int | None
    host_kv_memory: int | None
    page_size: int
    transports: tuple[str, ...]
    kernels: str = "auto"
    store: StoreFlags = field(default_factory=StoreFlags)

    @classmethod
    def parse(cls, args: Namespace) -> "EngineFlags":
        """From the flags of `add_engine`."""
        return cls(
            dtype=args.dtype or default_dtype(),
            max_model_len=args.max_model_len,
            kv_memory=args.kv_memory,
            host_kv_memory=args.host_kv_memory,
            page_size=args.page_size,
            transports=args.transports,
            kernels=args.kernels,
            store=StoreFlags.parse(args),
        )

    def argv(self) -> list[str]:
        """The flags that `parse` reads as this."""
        flags = ["--dtype", self.dtype, "--page-size", str(self.page_size), "--transports", ",".join(self.transports)]
        flags += ["--kernels", self.kernels, *self.store.argv()]
        for name in ("max_model_len", "kv_memory", "host_kv_memory"):
            if (value := getattr(self, name)) is not None:
                flags += [f"--{name.replace('_', '-')}", str(value)]
        return flags


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL, which may be left out, and --revision."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help=MODEL_HELP)
    help_text = "branch, tag or commit of a hub model (default: main); or write org/name@REVISION"
    parser.add_argument("--revision", metavar="REVISION", help=help_text)


def resolve(args: Namespace) -> Path:
    """The path of MODEL, downloaded where it is not on this machine, with progress on stderr. Raises ModelError."""
    from halfmoon.weights import ConsoleProgress, resolve_model

    return resolve_model(args.model, revision=args.revision, progress=ConsoleProgress(sys.stderr))


def add_listen(parser: argparse.ArgumentParser, *, port: int) -> argparse._ArgumentGroup:
    """--host and --port; returns their group."""
    group = parser.add_argument_group("where it listens")
    group.add_argument("--host", default=LOOPBACK, metavar="HOST", help="address; 0.0.0.0 for all interfaces")
    group.add_argument("--port", default=port, metavar="PORT", type=flag_types.port, help="0 takes a free one")
    return group


def add_metrics(group: argparse._ArgumentGroup) -> None:
    """--metrics-port."""
    help_text = "serve /metrics over HTTP here; 0 takes a free port (default: not served)"
    group.add_argument("--metrics-port", metavar="PORT", type=flag_types.port, help=help_text)


def add_routers(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """--router, at least once; returns its group."""
    group = parser.add_argument_group("fleet")
    group.add_argument(
        "--router",
        metavar="HOST:PORT",
        action="append",
        required=True,
        type=flag_types.address,
        help="a router; repeat the flag for several",
    )
    return group


def add_api_key(group: argparse._ArgumentGroup) -> None:
    """--api-key."""
    group.add_argument(
        "--api-key", metavar="KEY", help=f"key that clients must send (default: ${API_KEY_VARIABLE}, else none)"
    )


def api_key(args: Namespace) -> str | None:
    """The key of --api-key or the environment; None where there is none.

    Raises ConfigError for an empty --api-key: an unset shell variable must not open the API to everybody.
    """
    given: str | None = args.api_key
    if given is not None and not given.strip():
        raise ConfigError("--api-key is empty: give a key, or leave the flag out", param="api_key")
    return given or os.environ.get(API_KEY_VARIABLE) or None


def add_served_name(group: argparse._ArgumentGroup) -> None:
    """--served-model-name."""
    group.add_argument("--served-model-name", metavar="NAME", help="name that clients use (default: the model's own)")


def served_name(args: Namespace) -> str:
    """The name of --served-model-name, else MODEL's own."""
    from halfmoon.weights import served_name

    return args.served_model_name or served_name(args.model)


def add_split_threshold(group: argparse._ArgumentGroup) -> None:
    """--split-threshold."""
    help_text = (
        "a decode worker that lacks at most so many tokens of a prompt computes them itself; 0 always splits "
        f"(default: {SPLIT_THRESHOLD})"
    )
    group.add_argument(
        "--split-threshold", metavar="TOKENS", type=flag_types.natural, default=SPLIT_THRESHOLD, help=help_text
    )


def add_context(group: argparse._ArgumentGroup) -> None:
    """--max-model-len."""
    help_text = "longest prompt and answer together (default: the model's context)"
    group.add_argument("--max-model-len", metavar="TOKENS", type=flag_types.positive, help=help_text)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """What `EngineFlags.parse` reads."""
    group = parser.add_argument_group("engine")
    add_context(group)
    group.add_argument(
        "--dtype", choices=DTYPES, help="type of weights and KV (default: bfloat16 with a TPU, else float32)"
    )
    group.add_argument(
        "--kv-memory",
        metavar="SIZE",
        type=flag_types.byte_size,
        help="memory of each worker's KV cache, like 4GiB (default: 1GiB)",
    )
    group.add_argument(
        "--host-kv-memory",
        metavar="SIZE",
        type=flag_types.byte_size,
        help="memory of each worker's host pool, through which KV travels (default: as --kv-memory)",
    )
    add_store(group)
    group.add_argument(
        "--page-size",
        metavar="TOKENS",
        type=flag_types.page_size,
        default=PAGE_SIZE,
        help="tokens of a KV page, a power of two; the same for all workers",
    )
    group.add_argument(
        "--transports",
        metavar="NAMES",
        type=_transports,
        default=TRANSPORTS,
        help=f"how KV may travel, comma separated, best first, of {', '.join(KNOWN_TRANSPORTS)} "
        f"(default: {','.join(TRANSPORTS)})",
    )
    group.add_argument(
        "--kernels",
        choices=KERNELS,
        default="auto",
        help="the fastest kernels for each operation (auto), or plain XLA alone, to compare (xla)",
    )


def add_drain(parser: argparse.ArgumentParser) -> None:
    """--drain-seconds."""
    group = parser.add_argument_group("how it ends")
    help_text = "on SIGTERM or Ctrl-C, finish running requests for at most this long"
    group.add_argument(
        "--drain-seconds", metavar="SECONDS", type=flag_types.seconds, default=DEADLINES.drain, help=help_text
    )


def _transports(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in KNOWN_TRANSPORTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown transport {unknown[0]!r}; there are: {', '.join(KNOWN_TRANSPORTS)}")
    if names == ("jax",):
        raise argparse.ArgumentTypeError("jax needs another transport beside it, for when it fails: jax,shm,tcp")
    return names
