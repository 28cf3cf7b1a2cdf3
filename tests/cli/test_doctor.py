from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from airflow_provider.cli import doctor
from airflow_provider.cli.commands import main
from airflow_provider.emulator import Emulator
from airflow_provider.exceptions import ComplianceStorageDeniedError
from airflow_provider.storage.locations import Location
from tests.support.service import Reply, Service

CONN_ID = "compliance_default"
VARIABLE = f"AIRFLOW_CONN_{CONN_ID.upper()}"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator() as service:
        yield service


@pytest.fixture
def connection(emulator: Emulator) -> dict[str, Any]:
    emulator.reset()
    return dict(json.loads(emulator.connection_json))


@pytest.fixture
def diagnose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, tuple[str, str]]]]:
    """Run the command on a connection; return its exit code, and status and message of each line."""

    def run(connection: dict[str, Any] | str | None, *options: str) -> tuple[int, dict[str, tuple[str, str]]]:
        monkeypatch.delenv(VARIABLE, raising=False)
        if connection is not None:
            text = connection if isinstance(connection, str) else json.dumps(connection)
            monkeypatch.setenv(VARIABLE, text)
        code = main(["doctor", "--json", *options])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len({each["name"] for each in lines}) == len(lines)
        return code, {each["name"]: (each["status"], each["message"]) for each in lines}

    return run


@pytest.mark.parametrize(
    ("url", "address"),
    [("http://localhost/api", ("localhost", 80)), ("https://localhost", ("localhost", 443)),
     ("https://localhost:8443/x", ("localhost", 8443))],
)  # fmt: skip
def test_port_is_that_of_the_scheme_unless_the_url_has_one(
    url: str, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[Any] = []

    def reach(*given: Any) -> str:
        reached.append(given[-2:])
        return "reached"

    monkeypatch.setattr(doctor, "_reach", reach)
    monkeypatch.setattr(doctor.Diagnosis, "_get_certificate", reach)
    list(doctor.Diagnosis(CONN_ID)._check_network("service", url))
    assert set(reached) == {address}


def test_a_good_connection_has_no_problem_and_nothing_is_left_at_the_service(
    diagnose: Any, connection: dict[str, Any], emulator: Emulator
) -> None:
    code, lines = diagnose(connection)
    assert code == 0
    assert {status for status, _ in lines.values()} == {"OK"}
    assert list(lines) == [
        "versions",
        "connection",
        "settings",
        "network to the token endpoint",
        "network to the service",
        "login",
        "clock",
        "frameworks",
        "application info",
        "assessments",
        "batch status",
    ]
    assert VARIABLE in lines["connection"][1]
    assert "2 are listed" in lines["frameworks"][1]
    assert emulator.jobs() == []


def test_people_get_a_table_without_secrets(
    connection: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(connection))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("\nOK ") == 10
    assert connection["password"] not in shown
    assert connection["extra"]["client_secret"] not in shown


Change = Callable[[dict[str, Any], Emulator], Any]


def with_extra(**extra: Any) -> Change:
    return lambda connection, _: connection["extra"].update(extra)


def with_field(**fields: Any) -> Change:
    return lambda connection, _: connection.update(fields)


def without_extra(name: str) -> Change:
    return lambda connection, _: connection["extra"].pop(name)


def with_limit(most: int) -> Change:
    return lambda _, emulator: emulator.configure(max_batch=most)


def with_refusal(operation: str, status: int) -> Change:
    return lambda _, emulator: emulator.fail(operation, status=status, times=None)


def without_frameworks(connection: dict[str, Any], emulator: Emulator) -> None:
    emulator.set_frameworks([])


def with_nowhere(connection: dict[str, Any], emulator: Emulator) -> None:
    connection["extra"]["token_url"] = f"{emulator.url}/nowhere"


@pytest.mark.parametrize(
    ("change", "line", "status", "expected"),
    [
        (without_extra("token_url"), "settings", "PROBLEM", "The extra 'token_url'"),
        (with_field(conn_type="generic"), "connection type", "WARNING", "has the type 'generic', not 'compl"),
        (with_field(host="http://api.example.com"), "settings", "PROBLEM", "allow_http"),
        (with_extra(timeout="soon"), "settings", "PROBLEM", "The extra 'timeout'"),
        (with_extra(token_ulr="x"), "extras", "WARNING", "token_ulr"),
        (with_extra(state_path="s3://no_such_conn@bucket/state/"), "state path", "PROBLEM", "no_such_conn"),
        (with_field(host="http://no-such.localhost"), "network to the service", "PROBLEM", "no-such"),
        (with_field(host="http://127.0.0.1:1"), "network to the service", "PROBLEM", "127.0.0.1:1 can't"),
        (with_field(password="wrong"), "login", "PROBLEM", "check login and password"),
        (with_extra(client_secret="wrong"), "login", "PROBLEM", "'client_id' and 'client_secret'"),
        (with_extra(endpoints={"application_info": "/no"}), "application info", "PROBLEM", "'endpoints'"),
        (with_nowhere, "login", "PROBLEM", "token_url"),
        (with_limit(99), "batch status", "WARNING", "lower the extra 'batch_size'"),
        (with_refusal("get_statuses", 403), "batch status", "PROBLEM", "403"),
        (without_frameworks, "frameworks", "WARNING", "none is listed"),
    ],
)  # fmt: skip
def test_a_problem_is_one_line_that_says_what_to_do(
    diagnose: Any,
    connection: dict[str, Any],
    emulator: Emulator,
    change: Change,
    line: str,
    status: str,
    expected: str,
) -> None:
    change(connection, emulator)
    code, lines = diagnose(connection)
    assert lines[line][0] == status, lines
    assert expected in lines[line][1]
    assert {name for name, (found, _) in lines.items() if found != "OK"} == {line}
    assert code == (1 if status == "PROBLEM" else 0)


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (None, f"there is no connection '{CONN_ID}': set {VARIABLE}, or"),
        ('{"extra": "[1]"}', "can read the connection"),
        ('{"password": "pass-word"', "EnvironmentVariablesBackend failed with JSONDecodeError"),
    ],
)
def test_a_connection_that_can_not_be_read(
    diagnose: Any, monkeypatch: pytest.MonkeyPatch, connection: str | None, expected: str
) -> None:
    monkeypatch.setattr("airflow.secrets.metastore.MetastoreBackend.get_connection", lambda *_, **__: None)
    code, lines = diagnose(connection)
    status, message = lines["connection"]
    assert (code, status) == (1, "PROBLEM")
    assert expected in message
    assert "pass-word" not in message


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        ({"conn_type": "http", "password": "pass-word"}, "has the type 'http', not 'compliance': choose"),
        ({"host": "https://x", "password": "pass-word"}, "has no type"),
        ("not json nor uri", "has no type: write it as JSON "),
    ],
)
def test_a_connection_of_another_type_is_named_before_what_it_lacks(
    diagnose: Any, connection: dict[str, Any] | str, expected: str
) -> None:
    code, lines = diagnose(connection)
    assert list(lines)[1:] == ["connection", "settings"]
    status, message = lines["settings"]
    assert (code, status) == (1, "PROBLEM")
    assert message.startswith(f"The Airflow connection '{CONN_ID}' {expected}")
    assert ". The extra 'token_url'" in message
    assert "pass-word" not in str(lines)


def test_a_misspelt_extra_is_named_beside_the_one_that_is_missing(
    diagnose: Any, connection: dict[str, Any]
) -> None:
    connection["extra"]["token_ulr"] = connection["extra"].pop("token_url")
    _, lines = diagnose(connection)
    assert "token_ulr" in lines["extras"][1]
    assert "'token_url'" in lines["settings"][1]


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("", "OK", " can be read; that tasks may write there is not tested"),
        ("/new/state", "OK", "/new/state does not exist yet; the first task creates it"),
        ("/file", "PROBLEM", "/file is a file: set the extra 'state_path' to a folder"),
        ("/file/", "PROBLEM", "/file/ is a file"),
        ("/file/state", "PROBLEM", "/file/state"),
    ],
)
def test_a_state_path_is_a_folder_or_will_be_one(
    diagnose: Any, connection: dict[str, Any], tmp_path: Path, path: str, status: str, expected: str
) -> None:
    (tmp_path / "file").write_text("{}")
    connection["extra"]["state_path"] = f"{tmp_path}{path}"
    code, lines = diagnose(connection)
    assert (code, lines["state path"][0]) == (status == "PROBLEM", status)
    assert expected in lines["state path"][1]
    assert not (tmp_path / "new").exists()


def test_a_state_path_in_a_bucket_is_not_created_by_the_first_task(
    diagnose: Any, connection: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ls(*_: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Location, "fs", SimpleNamespace(ls=ls, isfile=lambda _: False))
    connection["extra"]["state_path"] = "s3://bucket/state/"
    _, lines = diagnose(connection)
    assert "has no objects yet; whether its bucket exists is not tested" in lines["state path"][1]


def test_store_is_listed_written_read_and_cleaned_up(diagnose: Any, tmp_path: Path) -> None:
    (tmp_path / "_work").mkdir()
    code, lines = diagnose(None, "--store", f"file://{tmp_path}/")
    assert lines["store"][0] == "OK"
    assert "listed, wrote, read and removed, in " in lines["store"][1]
    assert (code, list((tmp_path / "_work").iterdir())) == (1, [])  # there is no connection, but a store


@pytest.mark.parametrize("step", ["list_names", "read", "remove"])
def test_store_that_denies_a_step_is_a_problem(
    diagnose: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def deny(location: Location) -> None:
        raise ComplianceStorageDeniedError(f"No permission to {step}.")

    monkeypatch.setattr(Location, step, deny)
    assert diagnose(None, "--store", f"file://{tmp_path}/")[1]["store"] == (
        "PROBLEM",
        f"No permission to {step}.",
    )


def test_store_that_can_not_be_written_or_reads_otherwise_is_a_problem(
    diagnose: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    assert diagnose(None, "--store", f"file://{tmp_path}/file/")[1]["store"][0] == "PROBLEM"
    monkeypatch.setattr(Location, "read", lambda _: b"old")
    status, message = diagnose(None, "--store", f"file://{tmp_path}/")[1]["store"]
    assert (status, "reads otherwise" in message) == ("PROBLEM", True)


def test_a_wrong_path_in_the_base_url_is_named_and_nothing_else_is_blamed(
    diagnose: Any, connection: dict[str, Any], emulator: Emulator
) -> None:
    connection["host"] = f"{emulator.url}/wrong"
    code, lines = diagnose(connection)
    assert code == 1
    status, message = lines["frameworks"]
    assert (status, list(lines)[-1]) == ("PROBLEM", "frameworks")
    assert message.startswith("check the path of the base URL (host) of the connection. ")
    assert "/wrong/api/v1/" in message
    assert "endpoints" not in str(lines)


@pytest.mark.parametrize(("status", "is_path"), [(405, True), (413, False), (500, False)])
def test_the_base_url_is_blamed_only_if_the_service_knows_neither_path(
    diagnose: Any, connection: dict[str, Any], service: Service, status: int, is_path: bool
) -> None:
    service.on("GET /api/v1/frameworks", Reply(404))
    service.on("POST /api/v1/content-processing/status/batch", Reply(status))
    connection["host"] = service.url
    code, lines = diagnose(connection)
    assert code == 1
    assert ("base URL" in str(lines)) == is_path


def test_a_service_that_trusts_another_identity_provider(
    diagnose: Any, connection: dict[str, Any], service: Service
) -> None:
    service.on("GET /api/v1/frameworks", Reply(401))
    connection["host"] = service.url
    code, lines = diagnose(connection)
    assert code == 1
    assert "identity provider" in lines["frameworks"][1]


@pytest.mark.parametrize(("hours", "expected"), [(2, "7200 s ahead of"), (-2, "7200 s behind")])
def test_a_clock_that_is_wrong(
    diagnose: Any, connection: dict[str, Any], monkeypatch: pytest.MonkeyPatch, hours: int, expected: str
) -> None:
    monkeypatch.setattr(doctor, "_now", lambda: datetime.now(UTC) + timedelta(hours=hours, seconds=-0.5))
    code, lines = diagnose(connection)
    assert (code, lines["clock"][0]) == (0, "WARNING")
    # A busy machine takes some time between the answer and the look at the clock.
    assert re.search(rf"\b7(1[4-9]|2[0-5])\d {expected[5:]}", lines["clock"][1])


def test_a_proxy_is_named_without_its_password(
    diagnose: Any, connection: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:pass-word@127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    connection["host"], connection["extra"]["allow_http"] = "http://api.example.com", True
    code, lines = diagnose(connection)
    assert lines["proxy to the service"] == ("OK", "127.0.0.1:1, from the environment")
    assert code == 1
    assert "pass-word" not in str(lines)


@pytest.fixture
def tls_service() -> Iterator[tuple[Service, trustme.CA]]:
    service, authority = Service(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    service._server.socket = context.wrap_socket(service._server.socket, server_side=True)
    service.url = service.url.replace("http://", "https://")
    service.on("GET /api/v1/frameworks", Reply(json=[]))
    with service.running():
        yield service, authority


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_an_unknown_authority_and_then_its_file(
    diagnose: Any, connection: dict[str, Any], tls_service: tuple[Service, trustme.CA], tmp_path: Path
) -> None:
    service, authority = tls_service
    connection["host"], connection["extra"]["token_url"] = service.url, f"{service.url}/token"
    code, lines = diagnose(connection)
    status, message = lines["certificate of the token endpoint"]
    assert (code, status) == (1, "PROBLEM")
    assert "'verify'" in message

    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    connection["extra"]["verify"] = str(tmp_path / "ca.pem")
    _, lines = diagnose(connection)
    assert lines["certificate of the service"][0] == "OK"
    assert "expires in" in lines["certificate of the service"][1]

    connection["extra"]["verify"] = False
    _, lines = diagnose(connection)
    assert lines["certificate of the service"][0] == "WARNING"


@pytest.mark.parametrize(
    ("mode", "status", "expected"),
    [(0o700, "OK", "by all processes of this user"), (0o755, "WARNING", "set its mode to 700")],
)
def test_it_says_whether_tokens_are_shared(
    diagnose: Any,
    connection: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
    status: str,
    expected: str,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"airflow-provider-compliance-{os.geteuid()}").mkdir(mode=mode)
    connection["extra"]["share_tokens"] = True
    code, lines = diagnose(connection)
    assert (code, lines["shared tokens"][0]) == (0, status)
    assert expected in lines["shared tokens"][1]
    assert [each.name for each in tmp_path.iterdir() if list(each.iterdir())] == []  # it logs in by itself
