"""A supervisor over fake programs, as a process of its own. Run as `python -m tests.cli.fake_fleet FLAGS...`.

Each positional argument is the flags of one program, in one string; the first is the gateway, the second the router,
the rest are workers.
"""

import argparse
import shlex
import sys

import uvloop

from cli.preflight.ports import free_ports
from cli.supervise.console import Console
from cli.supervise.program import Program, Readiness, Tier
from cli.supervise.restarts import RestartPolicy
from cli.supervise.supervisor import Bounds, Supervisor


def fake(name: str, tier: Tier, port: int, *flags: str) -> Program:
    """A fake program that answers on `port`."""
    command = (sys.executable, "-m", "tests.cli.fake_program", "--port", str(port), *flags)
    return Program(name, tier, command, Readiness("127.0.0.1", port, http=True))


def main() -> int:
    """Runs until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", type=float, default=20.0)
    parser.add_argument("--drain", type=float, default=10.0)
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    names = ["gateway", "router", *(f"worker-{index}" for index in range(len(args.programs) - 2))]
    programs = tuple(
        fake(name, Tier(min(index, Tier.WORKER)), port, *shlex.split(flags))
        for index, (name, port, flags) in enumerate(zip(names, free_ports(len(names)), args.programs, strict=False))
    )
    console = Console(tuple(names))
    policy = RestartPolicy(first_delay=0.1, longest_delay=1.0)

    async def supervise() -> int:
        supervisor = Supervisor(programs, console, Bounds(args.start, args.drain), policy)
        return await supervisor.run(lambda: console.announce("READY"))

    return uvloop.run(supervise())


if __name__ == "__main__":
    sys.exit(main())
