"""The programs that `serve` plans."""

from dataclasses import replace
from pathlib import Path

from cli.announcement import announcement
from cli.commands.serve import worker_roles
from cli.flags import EngineFlags
from cli.fleet import ServeOptions, plan_fleet
from cli.main import build_parser
from cli.supervise.program import Program, Readiness, Tier, drain_order

OPTIONS = ServeOptions(
    model=Path("/models/tiny"),
    model_name="tiny",
    host="0.0.0.0",
    port=8000,
    router_port=7000,
    api_key="secret",
    engine=EngineFlags("float32", 2048, 1 << 30, None, 32, ("tcp",)),
    split_threshold=32,
    roles=("prefill", "decode", "decode"),
    start_seconds=60.0,
    drain_seconds=10.0,
)


def by_name(programs: tuple[Program, ...]) -> dict[str, Program]:
    return {program.name: program for program in programs}


def test_router_starts_first_and_gateway_last() -> None:
    names = [program.name for program in plan_fleet(OPTIONS)]
    assert names == ["router", "prefill-0", "decode-0", "decode-1", "gateway"]


def test_gateway_drains_first_and_workers_last() -> None:
    groups = [[program.name for program in group] for group in drain_order(plan_fleet(OPTIONS))]
    assert groups == [["gateway"], ["router"], ["prefill-0", "decode-0", "decode-1"]]


def test_every_program_understands_its_own_command() -> None:
    parser = build_parser()
    for program in plan_fleet(OPTIONS):
        args = parser.parse_args(program.command[3:])
        assert args.drain_seconds < OPTIONS.drain_seconds
        if program.tier is Tier.WORKER:
            assert EngineFlags.parse(args) == OPTIONS.engine
            assert args.router == ["127.0.0.1:7000"]
            assert args.worker_id == program.name


def test_ports_are_all_different() -> None:
    programs = plan_fleet(replace(OPTIONS, router_port=0))
    words = [
        word
        for program in programs
        for flag, word in zip(program.command, program.command[1:], strict=False)
        if flag in ("--port", "--metrics-port")
    ]
    assert len(words) == len(set(words)) == 9


def test_the_api_key_is_told_to_the_gateway_alone_and_not_on_its_command_line() -> None:
    programs = by_name(plan_fleet(OPTIONS))
    keys = {name: program.environment["HALFMOON_API_KEY"] for name, program in programs.items()}
    assert {name for name, key in keys.items() if key} == {"gateway"}
    assert not any("secret" in program.command for program in programs.values())


def test_a_gateway_on_all_interfaces_is_asked_on_the_loopback_interface() -> None:
    assert by_name(plan_fleet(OPTIONS))["gateway"].readiness == Readiness("127.0.0.1", 8000, http=True)


def test_an_unsplit_server_has_one_worker() -> None:
    programs = plan_fleet(replace(OPTIONS, roles=worker_roles("both", None, None)))
    assert [program.name for program in programs] == ["router", "both-0", "gateway"]


def test_announcement_has_the_address_and_a_request_to_try() -> None:
    text = announcement(OPTIONS, chats=True)
    assert "tiny at http://127.0.0.1:8000 (1 prefill + 2 decode)" in text
    assert "curl http://127.0.0.1:8000/v1/chat/completions" in text
    assert "Bearer $HALFMOON_API_KEY" in text
    assert "secret" not in text
    assert "/v1/completions" in announcement(OPTIONS, chats=False)
