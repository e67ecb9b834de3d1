"""What both tiers' servicers stand on: admission by state, requests off the wire, engine events on the event loop."""

from halfmoon.tier.events import EventStream, post_to
from halfmoon.tier.gate import Gate, WorkerState
from halfmoon.tier.intake import engine_request

__all__ = ["EventStream", "Gate", "WorkerState", "engine_request", "post_to"]
