"""Between the pages of an engine and the prefix store of its data plane: out before they are reused, back when needed.

Runs on the event loop of the engine's process, which alone imports it: a data plane knows nothing of engines.
"""

from kvtransfer.paging.page_store import PageStore
from kvtransfer.paging.reusable import ReusablePages

__all__ = ["PageStore", "ReusablePages"]
