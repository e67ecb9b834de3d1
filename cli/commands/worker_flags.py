"""What `halfmoon prefill` and `halfmoon decode` have in common: flags, and the way to a running worker."""

from argparse import Namespace
from typing import TYPE_CHECKING

from cli import environment, flags
from cli.flags import EngineFlags
from cli.parser import add_command
from cli.telemetry_flags import add_telemetry, telemetry_settings

if TYPE_CHECKING:
    from cli.parser import Subparsers


def add_worker(subparsers: "Subparsers", role: str, summary: str, *, port: int) -> None:
    """The command of one role."""
    examples = (
        f"  halfmoon {role} ./Qwen3-0.6B --host 10.0.0.5 --port {port} --router 10.0.0.2:7000 --kv-memory 8GiB\n"
        f"  halfmoon {role} --router 127.0.0.1:7000 --metrics-port {port + 1}"
    )
    parser = add_command(subparsers, role, summary, examples=examples, run=run)
    flags.add_model(parser)
    flags.add_metrics(flags.add_listen(parser, port=port))
    fleet = flags.add_routers(parser)
    fleet.add_argument(
        "--worker-id", metavar="NAME", help="name in the fleet; keep it over restarts (default: a random one)"
    )
    fleet.add_argument(
        "--role", choices=[role, "both"], default=role, help="what the worker admits: its own kind of work, or both"
    )
    flags.add_served_name(fleet)
    flags.add_engine(parser)
    add_telemetry(parser)
    flags.add_drain(parser)


def run(args: Namespace) -> int:
    """Serves until told to stop."""
    environment.prepare_jax()
    from cli.worker import WorkerConfig, run_worker

    engine = EngineFlags.parse(args)
    return run_worker(
        WorkerConfig(
            model=flags.resolve(args),
            role=args.role,
            host=args.host,
            port=args.port,
            routers=tuple(args.router),
            worker_id=args.worker_id,
            dtype=engine.dtype,
            max_model_len=engine.max_model_len,
            kv_memory=engine.kv_memory,
            host_kv_memory=engine.host_kv_memory,
            page_size=engine.page_size,
            metrics_port=args.metrics_port,
            drain_seconds=args.drain_seconds,
            transports=engine.transports,
            kernels=engine.kernels,
            store=engine.store,
            store_folder=engine.store.worker_folder(args.worker_id),
            served_model_name=flags.served_name(args),
            telemetry=telemetry_settings(args),
            core_share=environment.core_share(),
        )
    )
