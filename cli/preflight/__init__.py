"""What `serve` checks before it starts anything."""
