"""The command line as a person meets it: help pages, and wrong flags."""

import pytest

from cli.main import main

COMMANDS = ["serve", "gateway", "router", "prefill", "decode", "models", "bench"]


def page(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The help page of a command."""
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that says what is wrong with the arguments."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_first_page_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    text = page(capsys)
    assert all(f"\n    {command} " in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = page(capsys, command)
    assert f"usage: halfmoon {command}" in text
    assert f"examples:\n  halfmoon {command}" in text.replace("HALFMOON_API_KEY=secret ", "")


@pytest.mark.parametrize("command", COMMANDS[:-2])
def test_pages_show_defaults(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = page(capsys, command)
    assert "(default: 127.0.0.1)" in text
    assert "(default: None)" not in text


@pytest.mark.parametrize("action", ["list", "fetch", "describe", "export"])
def test_every_action_on_models_has_a_page(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"usage: halfmoon models {action}" in page(capsys, "models", action)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "COMMAND"),
        (["fly"], "'fly'"),
        (["models"], "ACTION"),
        (["serve", "--page-size", "48"], "'48' is not a power of two"),
        (["serve", "--port", "70000"], "'70000' is not a port"),
        (["serve", "--kv-memory", "much"], "'much' is not a size"),
        (["serve", "--prefill", "0"], "'0' is less than 1"),
        (["serve", "--dtype", "int3"], "'int3'"),
        (["serve", "--transports", "pigeon"], "unknown transport 'pigeon'"),
        (["serve", "--transports", "jax"], "jax needs another transport beside it"),
        (["serve", "--role", "decode"], "'decode'"),
        (["serve", "--drain", "5"], "--drain"),
        (["gateway"], "--router"),
        (["prefill", "--router", "nowhere"], "'nowhere' is not HOST:PORT"),
    ],
)
def test_wrong_flags_end_in_one_line_that_names_them(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, *arguments)
    assert said in line
    assert "--help" in line
