"""The prefill tier: computes prompts and publishes their KV."""

from prefill.servicer import PrefillServicer

__all__ = ["PrefillServicer"]
