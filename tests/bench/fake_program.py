"""The fake server as a program: `fake_program.py serve --port PORT [--die]`."""

import signal
import sys
import threading

from tests.bench.fake_server import Behaviour, serving


def main() -> None:
    """Serves until it is asked to end; with --die it complains and ends."""
    if "--die" in sys.argv:
        sys.exit("no memory left")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    slowness = float(sys.argv[sys.argv.index("--gap") + 1])
    with serving(Behaviour(first=slowness, gap=slowness), port=int(sys.argv[-1])):
        ended.wait(60)


if __name__ == "__main__":
    main()
