"""Pages of KV: who holds them, which prompts they can serve again. Plain Python."""
