"""`halfmoon serve`: a whole server on this machine."""

import signal
from argparse import Namespace
from typing import TYPE_CHECKING

from cli import flag_types, flags
from cli.flags import EngineFlags
from cli.fleet import ServeOptions
from cli.parser import add_command
from cli.preflight.ports import check_free, free_ports
from cli.telemetry_flags import add_telemetry, telemetry_settings
from halfmoon.errors import ConfigError

if TYPE_CHECKING:
    from cli.parser import Subparsers

NAME = "serve"
SUMMARY = "serve a model on this machine: gateway, router, prefill and decode workers"
EXAMPLES = """\
  halfmoon serve                                   the default model, one worker of each kind
  halfmoon serve ./Qwen3-0.6B --port 9000          a Hugging Face folder
  halfmoon serve Qwen/Qwen3-0.6B                   a model of the Hugging Face hub, downloaded once
  halfmoon serve model.gguf --prefill 2 --decode 2 --kv-memory 2GiB
  halfmoon serve --role both                       one worker that does both (unsplit)"""

START_SECONDS = 1800.0


def add_to(subparsers: "Subparsers") -> None:
    """Adds the command."""
    parser = add_command(subparsers, NAME, SUMMARY, examples=EXAMPLES, run=run)
    flags.add_model(parser)
    listen = flags.add_listen(parser, port=8000)
    listen.add_argument(
        "--router-port", metavar="PORT", type=flag_types.port, default=0, help="for gRPC clients (default: a free one)"
    )
    api = parser.add_argument_group("API")
    flags.add_api_key(api)
    flags.add_served_name(api)
    fleet = parser.add_argument_group("workers")
    fleet.add_argument("--prefill", metavar="N", type=flag_types.positive, help="prefill workers (default: 1)")
    fleet.add_argument("--decode", metavar="N", type=flag_types.positive, help="decode workers (default: 1)")
    fleet.add_argument("--role", choices=["both"], help="one worker that prefills and decodes, instead of two kinds")
    flags.add_split_threshold(fleet)
    flags.add_engine(parser)
    add_telemetry(parser)
    flags.add_drain(parser)
    parser.add_argument_group("how it starts").add_argument(
        "--start-seconds",
        metavar="SECONDS",
        type=flag_types.seconds,
        default=START_SECONDS,
        help="give up when not all programs are ready after this long",
    )


def run(args: Namespace) -> int:
    """Checks everything, then runs the programs until told to stop. Raises HalfmoonError before anything is started."""
    signal.signal(signal.SIGTERM, _end_before_start)
    roles = worker_roles(args.role, args.prefill, args.decode)
    telemetry = telemetry_settings(args)
    _check_ports(args)
    options = ServeOptions(
        model=flags.resolve(args),
        model_name=flags.served_name(args),
        host=args.host,
        port=args.port or free_ports(1, taken=(args.router_port,))[0],
        router_port=args.router_port,
        api_key=flags.api_key(args),
        engine=EngineFlags.parse(args),
        roles=roles,
        split_threshold=args.split_threshold,
        start_seconds=args.start_seconds,
        drain_seconds=args.drain_seconds,
        telemetry=telemetry,
    )
    from cli.serving import check, serve

    return serve(options, check(options))


def worker_roles(role: str | None, prefill: int | None, decode: int | None) -> tuple[str, ...]:
    """One entry for each worker. Raises ConfigError for flags that contradict each other."""
    if role is None:
        return ("prefill",) * (prefill or 1) + ("decode",) * (decode or 1)
    if prefill or decode:
        raise ConfigError("--role both is one worker that does both: leave out --prefill and --decode")
    return (role,)


def _check_ports(args: Namespace) -> None:
    if args.port and args.port == args.router_port:
        raise ConfigError(f"--port and --router-port are both {args.port}: the gateway and the router need one each")
    check_free(args.host, args.port, "--port")
    check_free(flags.LOOPBACK, args.router_port, "--router-port")


def _end_before_start(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
