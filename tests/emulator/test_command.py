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


def test_the_command_prints_the_connection_serves_with_all_options_and_ends_cleanly() -> None:
    options = "--jobs polls:2 --no-quirks --latency 0.001 --concurrency 9 --max-batch 8 --access-lifetime 60"
    endpoints = {"application_info": "/about"}
    others = ["--refresh-lifetime", "90", "--endpoints", json.dumps(endpoints)]
    with running(*options.split(), *others) as (process, lines):
        (printed,) = re.findall(r"^  export (.*)$", "\n".join(lines), re.MULTILINE)
        name, _, value = shlex.split(printed)[0].partition("=")
        host = json.loads(value)["host"]
        settings = requests.get(f"{host}/_emulator/settings", timeout=30).json()
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)

    assert (name, process.returncode) == ("AIRFLOW_CONN_COMPLIANCE_DEFAULT", 0)
    assert rest.strip() == "Stopped."
    assert (
        settings.items()
        >= {
            "jobs": "polls:2",
            "quirks": False,
            "latency": 0.001,
            "concurrency": 9,
            "max_batch": 8,
            "access_lifetime": 60,
            "refresh_lifetime": 90,
            "endpoints": endpoints,
        }.items()
    )


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


def test_a_port_in_use_is_named_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with Emulator() as service:
        assert main(["--port", str(service.port)]) == 1

    message = f"The emulator cannot listen on 127.0.0.1:{service.port}: Address already in use.\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "soon"], "jobs must be instant, polls:N, seconds:N or manual"),
        (["--frameworks", "no-such-file.json"], "no-such-file.json"),
        (["--frameworks", __file__], "test_command.py is not valid"),
    ],
)
def test_a_wrong_option_is_named_without_a_traceback(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["--port", "0", *arguments]) == 1

    assert message in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["pypdfium2", "selectolax.lexbor"])
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    for name in [each for each in sys.modules if re.match(r"airflow_provider\.emulator\.(ser|extr)", each)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)

    assert main([]) == 1

    said = capsys.readouterr().err
    assert f"The emulator needs {missing}, which is not installed: pip install" in said
