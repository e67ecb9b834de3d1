"""Whole pages of all layers: to and from the wire layout, and from one page to another."""

from halfmoon.kernels.kv_pages.xla import Caches, copy_page, gather_pages, scatter_pages

__all__ = ["Caches", "copy_page", "gather_pages", "scatter_pages"]
