"""Kernels for the CPU backend, compiled by LLVM for the processor at hand and called by XLA."""
