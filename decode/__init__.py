"""The decode tier: pulls prompts' KV and writes answers token by token."""

from decode.servicer import DecodeServicer

__all__ = ["DecodeServicer"]
