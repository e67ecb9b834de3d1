"""What the tiers of Halfmoon share and no tier owns."""

__version__ = "0.1.0"
