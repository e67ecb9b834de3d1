"""Scheduler and step loop for both kinds of step: prefill chunks and decode batches."""
