"""What a server tells about itself, and requests to it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec

from bench.answer import Answer
from bench.dialect import Dialect
from bench.samples import Sample
from bench.workloads import Request
from halfmoon.errors import ConfigError, HalfmoonError, UnavailableError

_FACTS_SECONDS = 30.0
_LONGEST_MESSAGE = 300


class ServedModel(msgspec.Struct, frozen=True):
    """An entry of `/v1/models`; what the server does not tell is None."""

    id: str
    max_model_len: int | None = None
    vocab_size: int | None = None
    fingerprint: str | None = None
    revision: str | None = None
    dtype: str | None = None
    owned_by: str | None = None


class _Models(msgspec.Struct):
    data: list[ServedModel] = []


class _Version(msgspec.Struct):
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """An OpenAI-compatible server at a base address without `/v1`; a request takes at most `request_seconds`."""

    session: aiohttp.ClientSession
    url: str
    request_seconds: float

    async def model(self, wanted: str | None) -> ServedModel:
        """The model of this name, or the first one. Raises UnavailableError, or ConfigError for a name not served."""
        models = msgspec.json.decode(await self._get("/v1/models"), type=_Models).data
        if not models:
            raise UnavailableError(f"{self.url} serves no model")
        for model in models:
            if wanted in (None, model.id):
                return model
        raise ConfigError(f"{self.url} does not serve {wanted!r}; it serves: {', '.join(model.id for model in models)}")

    async def version(self) -> str | None:
        """What `/version` says; None where there is no such page."""
        try:
            return msgspec.json.decode(await self._get("/version"), type=_Version).version
        except (UnavailableError, msgspec.DecodeError):
            return None

    async def complete(
        self, dialect: Dialect, request: Request, *, planned: float, clock: Callable[[], float]
    ) -> Sample:
        """Sends one request and reads its answer; what goes wrong is the sample's error."""
        body = dialect.body(request)
        sample = Sample(planned=planned, sent=clock(), wanted_tokens=request.max_tokens if request.exact else 0)
        try:
            async with asyncio.timeout(self.request_seconds):
                await self._stream(body, sample, clock)
        except TimeoutError:
            sample.error = f"no answer within {self.request_seconds:g} s"
        except (aiohttp.ClientError, OSError) as error:
            sample.error = _first_line(f"{type(error).__name__}: {error}")
        except HalfmoonError as error:
            sample.error = _first_line(error.message)
        return sample

    async def _stream(self, body: bytes, sample: Sample, clock: Callable[[], float]) -> None:
        answer = Answer()
        async with self.session.post(f"{self.url}/v1/completions", data=body) as response:
            if response.status != 200:
                raise UnavailableError(f"HTTP {response.status}: {_error_text(await response.read())}")
            async for data in response.content.iter_any():
                answer.push(data, clock())
        answer.into(sample)

    async def _get(self, path: str) -> bytes:
        try:
            async with asyncio.timeout(_FACTS_SECONDS), self.session.get(self.url + path) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise UnavailableError(f"no server answers at {self.url}: {error or type(error).__name__}") from None
        if response.status != 200:
            raise UnavailableError(f"{self.url}{path} answers HTTP {response.status}: {_error_text(body)}")
        return body


@asynccontextmanager
async def connect(url: str, *, api_key: str | None, request_seconds: float) -> AsyncIterator[Server]:
    """A server at `url`, with as many connections as requests are in flight; each bounded."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    connector = aiohttp.TCPConnector(limit=0)
    no_timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=no_timeout) as session:
        yield Server(session, url.rstrip("/").removesuffix("/v1"), request_seconds)


async def find_dialect(server: Server, dialect: Dialect, request: Request) -> Dialect:
    """The fullest dialect in which the server answers `request`. Raises UnavailableError with its own words."""
    start = time.perf_counter()
    refusals = []
    for candidate in dialect.plainer():
        sample = await server.complete(candidate, request, planned=0.0, clock=lambda: time.perf_counter() - start)
        if sample.error is None:
            return candidate
        refusals.append(sample.error)
        if not sample.error.startswith(("HTTP 400", "HTTP 422")):
            break
    hint = "" if isinstance(request.prompt, str) else " (one that takes no token ids needs --text)"
    raise UnavailableError(f"{server.url} does not complete a first prompt: {refusals[-1]}{hint}")


def _error_text(body: bytes) -> str:
    try:
        content = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return _first_line(body.decode("utf-8", "replace"))
    error = content.get("error", content) if isinstance(content, dict) else content
    return _first_line(str(error.get("message", error)) if isinstance(error, dict) else str(error))


def _first_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_MESSAGE]
