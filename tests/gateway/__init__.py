"""Tests of the gateway against a scripted router on a real gRPC server, over real HTTP."""
