"""`halfmoon router`: accepts requests over gRPC and sends them to workers."""

from argparse import Namespace
from typing import TYPE_CHECKING

from cli import flags
from cli.parser import add_command
from cli.telemetry_flags import add_telemetry, telemetry_settings

if TYPE_CHECKING:
    from cli.parser import Subparsers

NAME = "router"
SUMMARY = "run a router: gRPC in front of the workers, which register here"
EXAMPLES = """\
  halfmoon router ./Qwen3-0.6B --host 0.0.0.0 --port 7000 --metrics-port 7001"""


def add_to(subparsers: "Subparsers") -> None:
    """Adds the command."""
    parser = add_command(subparsers, NAME, SUMMARY, examples=EXAMPLES, run=run)
    flags.add_model(parser)
    flags.add_metrics(flags.add_listen(parser, port=7000))
    group = parser.add_argument_group("model")
    flags.add_served_name(group)
    flags.add_context(group)
    flags.add_split_threshold(parser.add_argument_group("scheduling"))
    add_telemetry(parser, names=False)
    flags.add_drain(parser)


def run(args: Namespace) -> int:
    """Serves until told to stop."""
    from cli.loop import run_until_signal
    from router import RouterConfig, run_router
    from router.config import PolicySettings

    config = RouterConfig(
        model_path=flags.resolve(args),
        host=args.host,
        port=args.port,
        metrics_port=args.metrics_port,
        served_model_name=flags.served_name(args),
        max_model_len=args.max_model_len,
        policy=PolicySettings(split_threshold=args.split_threshold),
    )
    settings = telemetry_settings(args)
    return run_until_signal(NAME, lambda stopping: run_router(config, stopping, grace=args.drain_seconds), settings)
