"""Compares Halfmoon with vLLM's CPU build on the same weights and the same machine."""
