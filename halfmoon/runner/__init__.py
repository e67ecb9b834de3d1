"""Compiled steps over the paged cache: shape buckets, prefill and decode steps, sampling."""
