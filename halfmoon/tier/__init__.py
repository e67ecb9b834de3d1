"""What both tiers' servicers stand on: admission by state, requests off the wire, engine events on the event loop."""

from halfmoon.tier.deadline import seconds_left
from halfmoon.tier.events import EventStream, post_to
from halfmoon.tier.gate import Gate, WorkerState
from halfmoon.tier.intake import engine_request
from halfmoon.tier.parts import TierParts

__all__ = ["EventStream", "Gate", "TierParts", "WorkerState", "engine_request", "post_to", "seconds_left"]
