"""What the handlers of one gateway share."""

from dataclasses import dataclass

from gateway.client import RouterClient
from gateway.config import GatewayConfig
from gateway.metrics import GatewayMetrics
from gateway.running import Running


@dataclass(frozen=True, slots=True)
class Services:
    """Owned by whoever made the app."""

    config: GatewayConfig
    client: RouterClient
    metrics: GatewayMetrics
    running: Running
