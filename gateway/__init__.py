"""HTTP for clients: the OpenAI API in front of the routers."""

from gateway.app import create_app
from gateway.config import GatewayConfig
from gateway.server import GatewayProgram, run_gateway

__all__ = ["GatewayConfig", "GatewayProgram", "create_app", "run_gateway"]
