"""What is asked: random prompts, prompts from a file, a recorded trace."""

from bench.workloads.prompt_file import PromptFile
from bench.workloads.random_prompts import RandomPrompts
from bench.workloads.request import Request, Workload
from bench.workloads.trace import Trace

__all__ = ["PromptFile", "RandomPrompts", "Request", "Trace", "Workload"]
