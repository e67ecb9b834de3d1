"""The handlers, by what they answer about."""
