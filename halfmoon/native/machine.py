"""Compiling kernels for the processor that this process runs on, and making XLA know them."""

import ctypes
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import jax.ffi
import llvmlite.binding as llvm
from llvmlite import ir

_LIBC = ("malloc", "free", "sched_yield")
_FFI_VERSION = {"MAJOR": "0", "MINOR": "3"}
"""The version of XLA's binary interface that call.ll is written for."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """float32 lanes of a register and how many registers there are."""

    lanes: int
    registers: int


@lru_cache(maxsize=1)
def vectors() -> Vectors:
    """The widest vectors of this processor."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return Vectors(16, 32)
    if features.get("avx2") and features.get("fma"):
        return Vectors(8, 16)
    return Vectors(4, 32 if features.get("neon") else 16)


def processor() -> str:
    """LLVM's name of this processor."""
    return str(llvm.get_host_cpu_name())


@lru_cache(maxsize=1)
def interface_known() -> bool:
    """Whether the installed XLA calls kernels in the way that call.ll is written for."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    if not header.is_file():
        return False
    return dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header.read_text())) == _FFI_VERSION


class Compiler:
    """Owns the compiled code; it stays valid as long as the process lives."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        libc = ctypes.CDLL(None)
        for name in _LIBC:
            address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
            llvm.add_symbol(name, address)
        self._target = llvm.Target.from_default_triple()
        self._call = files("halfmoon.native").joinpath("call.ll").read_text()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine())

    def register(self, name: str, kernel: ir.Module) -> None:
        """Makes the kernel, functions `chunks` and `kernel` of the module, an XLA target of that name."""
        machine = self._machine()
        module = llvm.parse_assembly(self._call.replace("@HANDLER", f"@{name}"))
        module.link_in(llvm.parse_assembly(str(kernel)))
        module.triple, module.data_layout = self._target.triple, str(machine.target_data)
        for function in module.functions:
            if not function.is_declaration and function.name != name:
                function.linkage = "internal"
        module.verify()
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        passes.getModulePassManager().run(module, passes)
        self._engine.add_module(module)
        self._engine.finalize_object()
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(self._engine.get_function_address(name))
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")

    def _machine(self) -> llvm.TargetMachine:
        features = llvm.get_host_cpu_features().flatten()
        return self._target.create_target_machine(cpu=processor(), features=features, opt=3)


@lru_cache(maxsize=1)
def compiler() -> Compiler:
    """The process's compiler."""
    return Compiler()
