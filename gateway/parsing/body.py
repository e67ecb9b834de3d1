"""The bytes of a body: bounded in size and time, and decoded to a struct."""

import asyncio
import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from gateway.errors import BodyTimeoutError, BodyTooLargeError, ClientGoneError
from halfmoon.errors import InvalidRequestError

T = TypeVar("T", bound=msgspec.Struct)

_DISCARD_FACTOR = 4
"""A body up to this many times too large is read to its end, so that the client gets to see the answer."""

_AT_PATH = re.compile(r" - at `\$\.?(?P<path>(?P<field>\w*).*)`$", re.DOTALL)


async def read_body(request: Request, *, limit: int, seconds: float) -> bytes:
    """The whole body. Raises BodyTooLargeError past `limit` bytes and BodyTimeoutError after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await _read(request, limit)
    except TimeoutError:
        raise BodyTimeoutError(f"the body did not arrive within {seconds:g} s") from None
    except ClientDisconnect:
        raise ClientGoneError("the client hung up before its request was complete") from None


async def _read(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        elif size > _DISCARD_FACTOR * limit:
            break
        else:
            parts.clear()
    if size > limit:
        raise BodyTooLargeError(f"the body has more than the {limit} bytes that are taken")
    return b"".join(parts)


def decode(body: bytes, kind: type[T]) -> T:
    """The body as a struct. Raises InvalidRequestError that names the field where there is one."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error)) from None
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidRequestError("the body is not valid JSON") from None
    except RecursionError:
        raise InvalidRequestError("the body is nested too deeply") from None


def _wrong_type(message: str) -> InvalidRequestError:
    found = _AT_PATH.search(message)
    if found is None:
        return InvalidRequestError(f"the body is not as expected: {message}")
    return InvalidRequestError(f"{found['path']}: {message[: found.start()]}", param=found["field"] or None)
