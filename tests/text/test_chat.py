"""Chat templates."""

from time import perf_counter

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from halfmoon.errors import InvalidRequestError, ModelError
from halfmoon.text import ChatTemplate, Tokenizer
from tests.text.tokenizers_made import CHAT, CONTROLS, byte_level, sentencepiece

TOKENIZER = Tokenizer(byte_level(), named_tokens={"bos_token": "<|bos|>"}, add_bos=True)
NORMALISING = Tokenizer(byte_level(nfkc=True), named_tokens={"bos_token": "<|bos|>"}, add_bos=True)
TEMPLATE = ChatTemplate(CHAT, TOKENIZER.named_tokens)

FRAGMENTS = st.sampled_from([*CONTROLS, "<", "<|", "|>", "im_end", "<|im_", "end|>", " ", "hello", "🙂", "\n"])
CONTENTS = st.lists(FRAGMENTS, max_size=8).map("".join)


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def controls(ids: list[int]) -> list[int]:
    return [token for token in ids if TOKENIZER.is_special(token)]


@given(content=CONTENTS)
@example(content="<|im_end|>")
@example(content="<|im_<|im_end|>end|>")
def test_control_tokens_in_a_message_never_act_and_never_change(content: str) -> None:
    ids = TEMPLATE.encode(user(content), TOKENIZER)
    assert controls(ids) == controls(TEMPLATE.encode(user("hello"), TOKENIZER))
    assert TOKENIZER.decode(ids, skip_special=False) == TEMPLATE.render(user(content))


@given(content=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_ordinary_messages_become_what_the_rendered_text_becomes(content: str) -> None:
    ids = TEMPLATE.encode(user(content), TOKENIZER)
    assert ids == TOKENIZER.encode(TEMPLATE.render(user(content)), add_special=False)


@pytest.mark.parametrize("content", ["hello there 中国 <", "a <| b", "  x<|im_", "<"])
def test_text_around_a_broken_control_token_is_tokenised_as_always(content: str) -> None:
    ids = TEMPLATE.encode(user(content), TOKENIZER)
    assert ids == TOKENIZER.encode(TEMPLATE.render(user(content)), add_special=False)


def test_a_control_token_cannot_be_put_together_from_two_values() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.name }}{{ m.content }}{% endfor %}", {})
    ids = template.encode([{"role": "user", "name": "<|im_", "content": "end|>"}], TOKENIZER)
    assert controls(ids) == []
    assert TOKENIZER.decode(ids, skip_special=False) == "<|im_end|>"


def test_a_control_token_that_only_normalisation_makes_stays_text() -> None:
    ids = TEMPLATE.encode(user("hi <｜im_end｜>"), NORMALISING)
    assert controls(ids) == controls(TEMPLATE.encode(user("hi"), NORMALISING))


def test_control_tokens_in_nested_parts_of_a_message_stay_text() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content[0].text }}{% endfor %}", {})
    ids = template.encode([{"role": "user", "content": [{"type": "text", "text": "<|bos|>"}]}], TOKENIZER)
    assert controls(ids) == []


def test_bos_is_the_template_s_alone() -> None:
    assert controls(TEMPLATE.encode(user("hello"), TOKENIZER)).count(0) == 1
    without = ChatTemplate(CHAT.removeprefix("{{ bos_token }}"), {})
    assert controls(without.encode(user("hello"), TOKENIZER)).count(0) == 0


def test_the_generation_prompt_can_be_left_out() -> None:
    assert TEMPLATE.render(user("a")).endswith("<|im_start|>assistant\n")
    assert TEMPLATE.render(user("a"), add_generation_prompt=False).endswith("a<|im_end|>\n")


def test_what_the_template_refuses_is_the_request_s_fault() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(InvalidRequestError, match="roles must alternate") as caught:
        template.render(user("a"))
    assert caught.value.param == "messages"


@pytest.mark.parametrize("body", ["{{ messages[0].content + 1 }}", "{{ messages[3].content.x }}", "{{ 1 / 0 }}"])
def test_errors_inside_a_template_are_the_request_s_fault(body: str) -> None:
    with pytest.raises(InvalidRequestError):
        ChatTemplate(body, {}).render(user("a"))


@pytest.mark.parametrize("role", ["", "user|>x<|im_end", "a b", None, 7])
def test_a_role_that_is_no_word_is_refused(role: object) -> None:
    with pytest.raises(InvalidRequestError, match="role"):
        TEMPLATE.render([{"role": role, "content": "a"}])


def test_a_template_that_is_no_jinja_is_the_model_s_fault() -> None:
    with pytest.raises(ModelError, match="line 2"):
        ChatTemplate("ok\n{% for %}", {})


def test_messages_are_not_changed() -> None:
    messages = user("<|im_end|>")
    TEMPLATE.encode(messages, TOKENIZER)
    assert messages == user("<|im_end|>")


@given(content=st.lists(st.sampled_from(["<s>", "</s>", " ", "the cat", "🙂", "▁"]), max_size=6).map("".join))
def test_a_sentencepiece_tokenizer_keeps_its_way_with_spaces(content: str) -> None:
    tokenizer = Tokenizer(sentencepiece(), named_tokens={"bos_token": "<s>", "eos_token": "</s>"})
    template = ChatTemplate("{{ bos_token }} {{ messages[0].content }} {{ eos_token }}", tokenizer.named_tokens)
    ids = template.encode(user(content), tokenizer)
    assert [token for token in ids if tokenizer.is_special(token)] == [1, 2]
    if "s>" not in content:
        assert ids == tokenizer.encode(template.render(user(content)), add_special=False)


def test_a_tokenizer_that_cannot_split_a_control_token_refuses_it() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "a": 1}, unk_token="a"))
    backend.decoder = tokenizers.decoders.Fuse()
    backend.add_special_tokens(["<s>"])
    tokenizer = Tokenizer(backend, named_tokens={})
    template = ChatTemplate("{{ messages[0].content }}", {})
    assert template.encode(user("a"), tokenizer) == [1]
    with pytest.raises(InvalidRequestError, match="control token"):
        template.encode(user("<s>"), tokenizer)


def test_long_messages_full_of_almost_control_tokens_are_no_burden() -> None:
    started = perf_counter()
    TEMPLATE.encode(user("<|im_" * 50_000 + "<|im_end|>" * 10_000), TOKENIZER)
    assert perf_counter() - started < 5
