"""What a client is told of one request, in order: the prompt, deltas, usage. Pure."""

import copy
from collections.abc import Iterable, Sequence

from halfmoon.errors import InternalError
from halfmoon.text import IncrementalDetokenizer, StopMatcher, TextModel
from halfmoon.v1 import common_pb2
from halfmoon.v1 import router_pb2 as pb
from router.choice import ChoiceOutput, TextRules, fill_token_bytes
from router.job import Job


class Answer:
    """Turns what the tiers send into responses; never sends anything twice, whichever tier it came from."""

    def __init__(self, job: Job, text: TextModel, model: str) -> None:
        self.cached_tokens = 0
        self._job = job
        self._text = text
        self._model = model
        self._choices = _choices(job, text)
        self._prompt_sent = False

    @property
    def done(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.ended for choice in self._choices)

    @property
    def cut(self) -> bool:
        """Whether a stop string ended some choice, so that its worker may still be writing."""
        return any(choice.cut for choice in self._choices)

    @property
    def completion_tokens(self) -> int:
        """Tokens of all choices so far."""
        return sum(choice.tokens for choice in self._choices)

    @property
    def finish(self) -> str:
        """How the choices ended, for the log: "stop", or "length,stop"."""
        return ",".join(sorted(set(self.finish_reasons)))

    @property
    def finish_reasons(self) -> list[str]:
        """How each choice that has ended did."""
        names = [common_pb2.FinishReason.Name(choice.finish) for choice in self._choices if choice.ended]
        return [name.removeprefix("FINISH_REASON_").lower() for name in names]

    def accepted(self, cached_tokens: int) -> list[pb.GenerateResponse]:
        """A worker has begun; the prompt is told now, and once, unless its log-probabilities are awaited."""
        if not self._prompt_sent:
            self.cached_tokens = cached_tokens
        return [] if self._job.sampling.prompt_logprobs is not None else self._prompt(())

    def prompt_logprobs(self, entries: Sequence[common_pb2.TokenLogprobs]) -> list[pb.GenerateResponse]:
        """The prompt with its log-probabilities, if they were asked for. Raises InternalError when some are missing."""
        if self._job.sampling.prompt_logprobs is None:
            return []
        if len(entries) != len(self._job.prompt_ids):
            raise InternalError(f"{len(entries)} prompt log-probabilities for {len(self._job.prompt_ids)} tokens")
        return self._prompt(entries)

    def tokens(self, tokens: Iterable[common_pb2.OutputToken]) -> list[pb.GenerateResponse]:
        """New tokens: one delta for each choice concerned. Raises InternalError for a gap or an unknown choice."""
        self._check_prompt_sent()
        touched: dict[int, ChoiceOutput] = {}
        for token in tokens:
            if token.choice >= len(self._choices):
                raise InternalError(f"a token for choice {token.choice} of {len(self._choices)}")
            choice = touched[token.choice] = self._choices[token.choice]
            choice.push(token)
        return [pb.GenerateResponse(delta=delta) for choice in touched.values() if (delta := choice.take())]

    def ended_without_tokens(self) -> list[pb.GenerateResponse]:
        """The prompt alone was asked for and is computed."""
        self._check_prompt_sent()
        for choice in self._choices:
            choice.end_without_tokens()
        return [pb.GenerateResponse(delta=delta) for choice in self._choices if (delta := choice.take())]

    @property
    def cut_choices(self) -> set[int]:
        """Choices that a stop string has ended: their worker does not know by itself."""
        return {choice.index for choice in self._choices if choice.cut}

    def usage(self) -> pb.GenerateResponse:
        """The last response."""
        return pb.GenerateResponse(
            usage=common_pb2.Usage(
                prompt_tokens=len(self._job.prompt_ids),
                completion_tokens=self.completion_tokens,
                cached_tokens=self.cached_tokens,
            )
        )

    def _check_prompt_sent(self) -> None:
        if not self._prompt_sent:
            raise InternalError("a worker sent its answer before what the prompt was to be told with")

    def _prompt(self, logprobs: Sequence[common_pb2.TokenLogprobs]) -> list[pb.GenerateResponse]:
        if self._prompt_sent:
            return []
        self._prompt_sent = True
        job, tokenizer = self._job, self._text.tokenizer
        for entry in logprobs:
            fill_token_bytes(entry, tokenizer)
        info = pb.PromptInfo(
            request_id=job.request_id,
            token_ids=job.prompt_ids,
            cached_tokens=self.cached_tokens,
            logprobs=logprobs,
            model=self._model,
        )
        if job.echo or logprobs:
            info.token_bytes.extend(tokenizer.token_bytes(token_id) for token_id in job.prompt_ids)
        if job.echo:
            info.text = _prompt_text(job, self._text)
        return [pb.GenerateResponse(prompt=info)]


def _prompt_text(job: Job, text: TextModel) -> str:
    if job.prompt_text is not None:
        return job.prompt_text
    return text.tokenizer.decode(job.prompt_ids, skip_special=not job.keep_special)


def _choices(job: Job, text: TextModel) -> list[ChoiceOutput]:
    sampling = job.sampling
    rules = TextRules(
        tokenizer=text.tokenizer,
        end_token_ids=frozenset(text.end_token_ids),
        stop_token_ids=frozenset(sampling.stop_token_ids),
        ignore_eos=sampling.ignore_eos,
        include_stop=job.include_stop,
        keep_special=job.keep_special,
        min_tokens=sampling.min_tokens,
    )
    # A copy shares the automaton, which is never changed.
    matcher = StopMatcher(job.stop, include_in_output=job.include_stop) if job.stop else None
    return [
        ChoiceOutput(
            index,
            rules,
            IncrementalDetokenizer(text.tokenizer, job.prompt_ids, skip_special=not job.keep_special),
            copy.copy(matcher),
        )
        for index in range(sampling.n)
    ]
