"""`halfmoon gateway`: the OpenAI API over HTTP in front of routers."""

from argparse import Namespace
from typing import TYPE_CHECKING

from cli import flags
from cli.parser import add_command
from cli.telemetry_flags import add_telemetry, telemetry_settings

if TYPE_CHECKING:
    from cli.parser import Subparsers

NAME = "gateway"
SUMMARY = "run a gateway: the OpenAI API over HTTP in front of one or more routers"
EXAMPLES = """\
  halfmoon gateway --router 10.0.0.2:7000 --host 0.0.0.0 --port 8000
  HALFMOON_API_KEY=secret halfmoon gateway --router 10.0.0.2:7000 --router 10.0.0.3:7000"""


def add_to(subparsers: "Subparsers") -> None:
    """Adds the command."""
    parser = add_command(subparsers, NAME, SUMMARY, examples=EXAMPLES, run=run)
    flags.add_listen(parser, port=8000)
    flags.add_routers(parser)
    flags.add_api_key(parser.add_argument_group("API"))
    add_telemetry(parser)
    flags.add_drain(parser)


def run(args: Namespace) -> int:
    """Serves until told to stop."""
    from cli.loop import run_until_signal
    from gateway import GatewayConfig, run_gateway

    settings = telemetry_settings(args)
    config = GatewayConfig(
        routers=tuple(args.router),
        host=args.host,
        port=args.port,
        api_key=flags.api_key(args),
        drain_seconds=args.drain_seconds,
        vllm_names=settings.metrics_names == "vllm",
    )
    return run_until_signal(NAME, lambda stopping: run_gateway(config, stopping=stopping), settings)
