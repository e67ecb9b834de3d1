"""Operations on paged KV and on logits: a folder per operation, each with a plain-XLA implementation.

The device cache of one layer is a pair: K [pages, kv_heads, head_dim, page_size] and V [pages, kv_heads, page_size,
head_dim]. With K transposed both products of attention read memory in order, which was the fastest of the layouts tried
on CPU. Page 0 is a scratch page: padding is written there and nothing reads it. `storage` says how values lie in the
arrays. Blocks on the wire have the contract's layout, [layers, kv_heads, page_size, 2 * head_dim]; `kv_pages` converts.
"""
