"""Names in the private folder of a data plane."""

ENGINE_SOCKET = "engine.sock"
"""Serves `DataPlane` to the engine."""

SHM_SOCKET = "shm.sock"
"""Serves the `shm` transport to peers on the same host."""
