"""Handle ids are secrets: how one is drawn, named in public, and proved without being sent."""

import hashlib
import hmac
import secrets

HANDLE_ID_BYTES = 16
TAG_BYTES = 16
NONCE_BYTES = 16
PROOF_BYTES = 32


def new_handle_id() -> bytes:
    """128 random bits."""
    return secrets.token_bytes(HANDLE_ID_BYTES)


def new_nonce() -> bytes:
    """128 random bits, used once."""
    return secrets.token_bytes(NONCE_BYTES)


def handle_tag(handle_id: bytes) -> bytes:
    """A public name of a handle: only who knows the handle can make it, and it does not help to read."""
    return hashlib.sha256(b"halfmoon handle tag" + handle_id).digest()[:TAG_BYTES]


def handle_label(handle_id: bytes) -> str:
    """A short name of a handle for logs and messages."""
    return handle_tag(handle_id)[:4].hex()


def prove(handle_id: bytes, role: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 over `role` ("reader" or "owner") and the parts, whose sizes the protocol fixes."""
    return hmac.digest(handle_id, role + b"".join(parts), "sha256")


def proof_holds(expected: bytes, given: bytes) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(expected, given)
