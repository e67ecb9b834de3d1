"""From logits to tokens and log-probabilities, on the device."""

from halfmoon.kernels.sample.params import Sampled, SampleFlags, SampleParams
from halfmoon.kernels.sample.slots import SlotState, count_tokens, empty_slots, reset_slot
from halfmoon.kernels.sample.xla import logprobs_of, sample

__all__ = [
    "SampleFlags",
    "SampleParams",
    "Sampled",
    "SlotState",
    "count_tokens",
    "empty_slots",
    "logprobs_of",
    "reset_slot",
    "sample",
]
