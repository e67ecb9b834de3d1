"""On the CPU: in place, one chunk of work a KV head of a run."""

from functools import lru_cache

import jax
import jax.ffi
from jax import Array
from llvmlite import ir

from halfmoon.native.emit import I64, PTR, VOID, Call, function
from halfmoon.native.machine import compiler


def write_runs(k_pages: Array, v_pages: Array, k: Array, v: Array, pages: Array, slots: Array) -> tuple[Array, Array]:
    """See the plain XLA implementation; tokens of their own are runs of length one."""
    results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (k_pages, v_pages)]
    call = jax.ffi.ffi_call(_target(), results, vmap_method="sequential", input_output_aliases={0: 0, 1: 1})
    written_k, written_v = call(k_pages, v_pages, k, v, pages, slots)
    return written_k, written_v


@lru_cache(maxsize=1)
def _target() -> str:
    compiler().register("halfmoon_kv_write", _module())
    return "halfmoon_kv_write"


def _module() -> ir.Module:
    module = ir.Module("kv_write")
    emitter, (frame,) = function(module, "chunks", ir.FunctionType(I64, [PTR]))
    call = Call(emitter, frame)
    emitter.builder.ret(emitter.builder.mul(call.argument(2).dim(0), call.argument(4).dim(0)))

    emitter, (frame, chunk) = function(module, "kernel", ir.FunctionType(VOID, [PTR, I64]))
    call, builder = Call(emitter, frame), emitter.builder
    keys, pages, slots = call.argument(2), call.argument(4), call.argument(5)
    kv_heads, head_dim, tokens, runs = keys.dim(0), keys.dim(1), keys.dim(2), pages.dim(0)
    run, head = builder.sdiv(chunk, kv_heads), builder.srem(chunk, kv_heads)
    length, page_size = builder.sdiv(tokens, runs), call.argument(0).dim(3)
    page, slot = emitter.index(pages.data, run), emitter.index(slots.data, run)
    block = emitter.mul_add(emitter.mul_add(page, kv_heads, head), builder.mul(page_size, head_dim))
    source = emitter.mul_add(builder.mul(head, head_dim), tokens, run, length)
    k, v = emitter.at(keys.data, source), emitter.at(call.argument(3).data, source)
    k_page, v_page = emitter.at(call.result(0).data, block), emitter.at(call.result(1).data, block)
    with emitter.loop(emitter.number(0), head_dim) as d, emitter.loop(emitter.number(0), length) as token:
        place, at = emitter.mul_add(d, tokens, token), builder.add(slot, token)
        emitter.store(emitter.load(emitter.at(k, place)), emitter.at(k_page, emitter.mul_add(d, page_size, at)))
        emitter.store(emitter.load(emitter.at(v, place)), emitter.at(v_page, emitter.mul_add(at, head_dim, d)))
    builder.ret_void()
    return module
