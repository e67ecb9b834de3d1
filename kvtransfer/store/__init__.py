"""The prefix store: KV pages found again by content hash, and the tiers that keep them below host memory."""
