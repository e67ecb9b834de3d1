"""A program to be supervised: answers /readyz, and ends as it is told. Run as `python -m tests.cli.fake_program`."""

import argparse
import http.server
import os
import signal
import subprocess
import sys
import threading
import time

from cli.parent_death import end_with_parent

TIDY_CHILD = """
import os, pathlib, sys, time
file, parent = pathlib.Path(sys.argv[1]), os.getppid()
file.touch()
print("child has its file", flush=True)
while os.getppid() == parent:
    time.sleep(0.02)
file.unlink()
"""
"""A process that removes its file once its parent has ended."""


class Ready(http.server.BaseHTTPRequestHandler):
    """Answers 200 to everything, or 503."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def main() -> int:
    """Serves until SIGTERM, or as the flags say."""
    end_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--die-after", type=float)
    parser.add_argument("--status", type=int, default=3)
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--with-child", action="store_true")
    parser.add_argument("--with-tidy-child", metavar="FILE")
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--drain-takes", type=float, default=0.0)
    args = parser.parse_args()
    Ready.status = 503 if args.never_ready else 200
    ended = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if args.ignore_sigterm else lambda *_: ended.set())
    if args.with_child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(f"child {child.pid}", flush=True)
    if args.with_tidy_child:
        subprocess.Popen([sys.executable, "-c", TIDY_CHILD, args.with_tidy_child])
    print(f"pid {os.getpid()}", flush=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Ready)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ended.wait(args.die_after)
    if not ended.is_set():
        return int(args.status)
    print("drains", flush=True)
    time.sleep(args.drain_takes)
    print("has drained", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
