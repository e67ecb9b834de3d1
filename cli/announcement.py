"""What `serve` prints when it is ready."""

import json
import shlex

from cli.flags import API_KEY_VARIABLE
from cli.fleet import ServeOptions, reachable

_WORKERS = {"prefill": "prefill", "decode": "decode", "both": "worker for both, unsplit"}


def announcement(options: ServeOptions, *, chats: bool) -> str:
    """The address, what runs behind it, and a request to try."""
    kinds = dict.fromkeys(options.roles)
    workers = " + ".join(f"{options.roles.count(role)} {_WORKERS[role]}" for role in kinds)
    return "\n".join(
        [
            "",
            f"Ready: {options.model_name} at {_base_url(options)} ({workers})",
            "",
            "Try it:",
            _example(options, chats),
            "",
            "Stop it with Ctrl-C.",
        ]
    )


def _base_url(options: ServeOptions) -> str:
    host = reachable(options.host)
    return f"http://[{host}]:{options.port}" if ":" in host else f"http://{host}:{options.port}"


def _example(options: ServeOptions, chats: bool) -> str:
    question = "What is the capital of France?"
    if chats:
        path, prompt = "/v1/chat/completions", {"messages": [{"role": "user", "content": question}]}
    else:
        path, prompt = "/v1/completions", {"prompt": "The capital of France is"}  # type: ignore[dict-item]
    body = json.dumps({"model": options.model_name, **prompt, "max_tokens": 32, "temperature": 0})
    key = f' -H "Authorization: Bearer ${API_KEY_VARIABLE}"' if options.api_key else ""
    return f"  curl {_base_url(options)}{path} -H 'Content-Type: application/json'{key} \\\n    -d {shlex.quote(body)}"
