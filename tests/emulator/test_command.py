from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import requests

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.__main__ import main, print_banner
from airflow_provider.hooks.connection import parse_settings
from airflow_provider.provider_info import CONNECTION_FIELDS, HOOK_NAME, RELABELING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "airflow_provider.emulator"]


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run the command until the end of the block; give it with the first lines that it prints."""
    with subprocess.Popen(
        [*COMMAND, "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if "Ctrl-C" in line:
                    break
            yield process, lines
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_the_connection_serves_and_ends_cleanly(number: signal.Signals) -> None:
    with running("--jobs", "polls:2") as (process, lines):
        printed = re.findall(r"AIRFLOW_CONN_COMPLIANCE_DEFAULT='(.*)'", "\n".join(lines))
        connection = json.loads(printed[0])
        assert printed[1].startswith("compliance://partner:partner-password@http%3A%2F%2F127.0.0.1")
        settings = requests.get(connection["host"] + "/_emulator/settings", timeout=30).json()
        assert settings["jobs"] == "polls:2"

        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)

        assert process.returncode == 0
        assert rest.strip() == "Stopped."


@pytest.fixture
def banner(service: Emulator, capsys: pytest.CaptureFixture[str]) -> str:
    print_banner(service)
    return capsys.readouterr().out


ELSEWHERE = {"endpoints": {"application_info": "/about"}}


@pytest.mark.parametrize(
    "settings", [pytest.param(each, marks=pytest.mark.compliance_service(**each)) for each in ({}, ELSEWHERE)]
)
def test_every_printed_field_of_the_connection_form_can_be_pasted(
    service: Emulator, banner: str, settings: dict[str, Any]
) -> None:
    from airflow.models.connection import Connection

    names = {"Port": "port", **{label: name for name, label in RELABELING.items()}}
    names |= {field["label"]: name for name, field in CONNECTION_FIELDS.items()}
    printed = dict(re.findall(r"^  (\S+(?: \S+)?) {2,}(\S.*)$", banner, re.MULTILINE))
    conn_id = printed.pop("Connection ID")
    assert printed.pop("Connection Type") == HOOK_NAME
    fields = {names[label]: value for label, value in printed.items()}

    assert fields["host"] == "http://127.0.0.1"
    assert fields["port"] == str(service.port)
    extra = {name: fields.pop(name) for name in list(fields) if name in CONNECTION_FIELDS}
    connection = Connection(
        conn_id, "compliance", **{**fields, "port": int(fields["port"])}, extra=json.dumps(extra)
    )
    assert parse_settings(connection) == parse_settings(
        Connection.from_json(service.connection_json, "compliance_default")
    )
    assert set(extra) == set(service.connection()["extra"])


def test_the_printed_command_adds_the_connection(service: Emulator, banner: str) -> None:
    from airflow.cli.cli_parser import get_parser
    from airflow.models.connection import Connection

    [line] = re.findall(r"^  airflow (.*)$", banner, re.MULTILINE)

    given = get_parser().parse_args(shlex.split(line))

    connection = Connection(
        given.conn_id,
        given.conn_type,
        host=given.conn_host,
        port=int(given.conn_port),
        login=given.conn_login,
        password=given.conn_password,
        extra=given.conn_extra,
    )
    assert parse_settings(connection) == parse_settings(
        Connection.from_json(service.connection_json, "compliance_default")
    )


@pytest.mark.compliance_service(password="it's $HOME")
def test_a_shell_takes_the_printed_lines_as_they_are(service: Emulator, banner: str) -> None:
    exports = re.findall(r"^  export (.*)$", banner, re.MULTILINE)

    values = [shlex.split(line)[0].partition("=")[2] for line in exports]

    assert values == [service.connection_json, service.connection_uri]


def test_every_option_reaches_the_emulator() -> None:
    options = "--seed 7 --no-quirks --latency 0.001 --concurrency 9 --max-batch 8"
    lifetimes = "--access-lifetime 60 --refresh-lifetime 90"
    endpoints = '{"application_info":"/about"}'
    with running(*options.split(), *lifetimes.split(), "--endpoints", endpoints) as (_, lines):
        found = re.search(r"http://127\.0\.0\.1:\d+/(?=$)", "\n".join(lines), re.MULTILINE)
        assert found is not None
        settings = requests.get(f"{found[0]}_emulator/settings", timeout=30).json()

    wanted = {
        "seed": 7,
        "quirks": False,
        "latency": 0.001,
        "concurrency": 9,
        "max_batch": 8,
        "endpoints": {"application_info": "/about"},
    }
    assert settings.items() >= {**wanted, "access_lifetime": 60, "refresh_lifetime": 90}.items()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "soon"], "jobs must be instant, polls:N, seconds:N or manual"),
        (["--frameworks", "no-such-file.json"], "no-such-file.json"),
    ],
)
def test_a_wrong_option_is_named_without_a_traceback(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["--port", "0", *arguments]) == 1

    assert message in capsys.readouterr().err


def test_a_port_in_use_is_named_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with Emulator() as service:
        assert main(["--port", str(service.port)]) == 1

    message = f"The emulator cannot listen on 127.0.0.1:{service.port}: Address already in use.\n"
    assert capsys.readouterr().err == message


def test_the_help_names_every_way_of_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    out = capsys.readouterr().out
    assert all(word in out for word in ("instant", "polls:N", "seconds:N", "manual", "127.0.0.1"))


def test_a_missing_extra_is_named_with_a_command_that_has_constraints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import airflow

    for name in [each for each in sys.modules if each.startswith("airflow_provider.emulator.ser")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jwt", None)
    assert main([]) == 1
    said = capsys.readouterr().err
    assert "The emulator needs jwt, which is not installed: pip install --constraint https://" in said
    assert (
        f"/constraints-{airflow.__version__}/constraints-{sys.version_info[0]}.{sys.version_info[1]}.txt"
        in said
    )
    assert said.endswith("'airflow-provider-compliance[emulator]'\n")
