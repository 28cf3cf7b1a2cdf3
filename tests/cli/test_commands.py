"""The command line starts fast, without Airflow, and is a part of Airflow's where that takes commands."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli import commands
from airflow_provider.cli.access import asking_airflow
from airflow_provider.cli.commands import main, run
from airflow_provider.cli.options import COMMANDS
from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.provider_info import get_provider_info
from airflow_provider.storage.locations import Location
from tests.support.nights import NightWriter

HAS_PROVIDER_COMMANDS = (
    "cli"
    in json.loads(resources.files("airflow").joinpath("provider_info.schema.json").read_text())["properties"]
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = NightWriter(Location(f"file://{tmp_path}/out"))
    writer.night(1)
    writer.night(2)
    return tmp_path / "out"


def python(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-W", "ignore", *map(str, arguments)]
    return subprocess.run(
        call, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


WITHOUT_AIRFLOW = """
import sys
sys.modules["airflow"] = None  # importing it fails
from airflow_provider.cli.commands import main
code = main()
loaded = {name.partition(".")[0] for name in sys.modules}
print(loaded & {"aiohttp", "jinja2", "pydantic", "requests", "s3fs"} or "light")
sys.exit(code)
"""


def test_verify_needs_no_airflow(root: Path) -> None:
    done = python("-c", WITHOUT_AIRFLOW, "verify", root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("light\n")
    (root / "dt=2026-01-01/document-0.txt").unlink()
    assert python("-m", "airflow_provider", "verify", root).returncode == 1
    assert python("-m", "airflow_provider", "verify", root / "nothing").returncode == 2


def test_verify_takes_a_relative_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    assert main(["verify", "out"]) == 0


# One process runs both, as it takes seconds to start Airflow.
AIRFLOW = """
import pathlib, sys
from airflow.__main__ import main
for damage in (False, True):
    if damage:
        pathlib.Path(sys.argv[3], "dt=2026-01-01/document-0.txt").unlink()
    try:
        main()
    except SystemExit as error:
        print(f"exit code {error.code}", flush=True)
"""


@pytest.mark.skipif(not HAS_PROVIDER_COMMANDS, reason="this Airflow takes no commands of providers")
def test_verify_is_a_command_of_airflow(root: Path, tmp_path: Path) -> None:
    # No database: it does not exist, and can't be created.
    environment = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////nonexistent/airflow.db",
        "AIRFLOW_HOME": f"{tmp_path}/home",
    }
    done = python("-c", AIRFLOW, "compliance", "verify", root, "--json", **environment)
    assert done.returncode == 0, done.stderr
    good, _, bad = done.stdout.partition("exit code 0\n")
    *nights, last = [json.loads(line) for line in good.splitlines()]
    assert [night["status"] for night in nights] == ["OK", "OK"]
    assert last["totals"]["objects"] == 16
    assert "document-0.txt does not exist" in bad
    assert bad.endswith("exit code 1\n")


@pytest.mark.skipif(not HAS_PROVIDER_COMMANDS, reason="this Airflow takes no commands of providers")
def test_airflow_and_we_have_the_same_commands() -> None:
    (path,) = get_provider_info()["cli"]
    assert path == "airflow_provider.cli.commands.get_commands"
    from airflow_provider.cli.commands import get_commands

    (group,) = get_commands()
    assert group.name == "compliance"
    assert [each.name for each in group.subcommands] == [each.name for each in COMMANDS]
    for ours, theirs in zip(COMMANDS, group.subcommands, strict=True):
        assert [flags for flags, _ in ours.options] == [each.flags for each in theirs.args]


def test_every_command_has_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            main([command.name, "--help"])
        assert caught.value.code == 0
        assert "--json" in capsys.readouterr().out


def fail(error: BaseException) -> Any:
    def call(options: Namespace) -> int:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ComplianceInputError("Give a root."), 2, "error: Give a root.\n"),
        (ComplianceStorageError("a\x1b[2Jb\nc"), 2, "error: a\\x1b[2Jb c\n"),
        (KeyboardInterrupt(), 130, "error: Interrupted.\n"),
        (
            RuntimeError("no https://ada:pass-word@example.com/, secret_key=abc\n"),
            2,
            "error: Unexpected RuntimeError: no https://redacted-fdee430d40bd@example.com/, secret_key=***",
        ),
    ],
)
def test_errors_are_one_line_for_people(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(fail(error), Namespace()) == code
    printed = capsys.readouterr().err
    assert printed.startswith(said)
    assert printed.count("\n") == 1
    assert "pass-word" not in printed


@pytest.mark.parametrize(
    "arguments",
    [("verify", "foo://bar/"), ("verify", "foo://bar@x/", "--use-connection"), ("jobs", "foo://bar/")],
)
def test_an_unknown_scheme_is_wrong_use(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BAR", '{"conn_type": "aws"}')
    assert main(list(arguments)) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(r"error: 'foo://.*' can't be used: .*foo.*\n", said)


@pytest.mark.parametrize("uri", ["s3://AKIA123:pass-word@bucket/x", "https://ada:pass-word@127.0.0.1:1/x"])
def test_a_login_in_a_uri_is_refused_and_not_shown(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", uri]) == 2
    said = capsys.readouterr().err
    assert "contains a login: name an Airflow connection" in said
    assert "pass-word" not in said.casefold()


def test_asking_airflow_leaves_logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root.manager, "_disable", logging.WARNING)
    with asking_airflow():
        assert logging.root.manager.disable == logging.WARNING
    assert logging.root.manager.disable == logging.WARNING


def test_names_that_the_terminal_can_t_show_are_escaped() -> None:
    assert commands._plain("Größe \U0001f600 \ud800", "ascii") == "Gr\\xf6\\xdfe \\U0001f600 \\ud800"


VERIFY = [sys.executable, "-W", "ignore", "-m", "airflow_provider", "verify"]


def test_a_reader_that_stops_reading_is_not_a_crash(root: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # before it can write anything
    try:
        done = subprocess.run(
            [*VERIFY, str(root)], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        (">&-", 0, ""),
        (">/dev/full", 2, "error: No space left on device: make room, or write elsewhere.\n"),
    ],
)
def test_an_output_that_can_not_be_written_is_not_a_bug(root: Path, shell: str, code: int, said: str) -> None:
    command = shlex.join([*VERIFY, str(root)])
    done = subprocess.run(["bash", "-c", f"{command} {shell}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_table_stays_readable_with_endless_cells(capsys: pytest.CaptureFixture[str]) -> None:
    commands.print_table(("NAME", "WHY"), [("a", "x" * 1_000_000), ("b\n\x1b[2J", "y")])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) < 300
    assert "b\\n\\x1b[2J" in shown
