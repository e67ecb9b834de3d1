"""Streams as a client reads them, and their join."""

import json
from collections import defaultdict
from typing import Any

import httpx

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

Json = dict[str, Any]


async def read_stream(http: httpx.AsyncClient, path: str, body: Json) -> list[Json]:
    """The events of a stream, which must begin with status 200 and end with the end mark."""
    async with http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line async for line in response.aiter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def join_stream(path: str, chunks: list[Json]) -> Json:
    """What the whole answer must be for these chunks; without `usage`."""
    parts: defaultdict[int, list[Json]] = defaultdict(list)
    for chunk in chunks:
        for choice in chunk["choices"]:
            parts[choice["index"]].append(choice)
    joined = [_join_choice(path, parts[index]) for index in sorted(parts)]
    head = {key: value for key, value in chunks[0].items() if key != "usage"}
    head["object"] = head["object"].removesuffix(".chunk")
    return {**head, "choices": joined}


def comparable(answer: Json) -> Json:
    """An answer without what differs from request to request."""
    return {key: value for key, value in answer.items() if key not in {"id", "created", "usage"}}


def _join_choice(path: str, parts: list[Json]) -> Json:
    last = parts[-1]
    choice: Json = {**parts[0], **{key: last[key] for key in ("finish_reason", "stop_reason") if key in last}}
    if path == CHAT:
        del choice["delta"]
        text = "".join(part["delta"].get("content", "") for part in parts)
        choice["message"] = {"role": parts[0]["delta"]["role"], "content": text}
    else:
        choice["text"] = "".join(part["text"] for part in parts)
    choice["logprobs"] = _join_logprobs([part["logprobs"] for part in parts if part["logprobs"] is not None])
    if any("token_ids" in part for part in parts):
        choice["token_ids"] = [token for part in parts for token in part.get("token_ids", [])]
    return choice


def _join_logprobs(parts: list[Json]) -> Json | None:
    if not parts:
        return None
    return {column: [entry for part in parts for entry in part[column]] for column in parts[0]}
