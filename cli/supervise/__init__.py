"""Runs several programs on this machine: starts, watches, restarts and stops them."""
