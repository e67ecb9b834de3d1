"""The router: which worker serves what, and the request's way through both tiers."""

from router.config import PolicySettings, RouterConfig
from router.program import RouterProgram, run_router

__all__ = ["PolicySettings", "RouterConfig", "RouterProgram", "run_router"]
