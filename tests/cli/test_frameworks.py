from __future__ import annotations

import pytest

from airflow_provider.assess.cells import select_frameworks
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from tests.cli.conftest import Call


@pytest.fixture
def service(emulated_service: Emulator) -> Emulator:
    return emulated_service


def test_fingerprints_are_those_of_bulk_assessment(service: Emulator, call: Call) -> None:
    printed = call("frameworks", "--json")
    assert printed.code == 0
    assessed = {each.id: each for each in select_frameworks(ComplianceHook().list_frameworks(), ())}
    assert len(assessed) == len(printed.lines) == 2
    for line in printed.lines:
        framework = assessed[line["id"]]
        assert line["fingerprint"] == framework.fingerprint
        assert (line["code_name"], line["criteria"]) == (framework.code_name, len(framework.criteria))
    (first, _) = call("frameworks", "compliance_default", "--json", "--criteria").lines
    assert [each["code_name"] for each in first["criteria"]] == [code for code, _ in assessed["1"].criteria]


def test_people_get_a_table_that_the_service_can_t_control(service: Emulator, call: Call) -> None:
    frameworks = service.frameworks()
    frameworks[0]["name"] = "a\x1b[2Jb\u202ec"
    frameworks[0]["criteria"][0]["name"] = "d\x07e"
    service.set_frameworks(frameworks)
    printed = call("frameworks")
    assert printed.code == 0
    header, first, *_ = printed.out.splitlines()
    assert header.split() == ["ID", "CODE", "NAME", "CRITERIA", "FINGERPRINT", "NAME"]
    assert first.endswith("a\\x1b[2Jb\\u202ec")
    assert first.index("6 ") == header.index("CRITERIA")
    assert "d\\x07e" in call("frameworks", "--criteria").out


def test_no_frameworks_are_a_finding(service: Emulator, call: Call) -> None:
    service.set_frameworks([])
    printed = call("frameworks", "--json")
    assert (printed.code, printed.out) == (1, "")
    assert "lists no frameworks" in printed.err


@pytest.mark.parametrize("conn_id", ["nothing", "a b\x1b"])
def test_a_connection_that_does_not_exist(conn_id: str, call: Call) -> None:
    printed = call("frameworks", conn_id)
    assert (printed.code, printed.out) == (2, "")
    assert "There is no Airflow connection" in printed.err
    assert printed.err.count("\n") == 1


def test_a_wrong_password_is_said_in_one_line(service: Emulator, call: Call) -> None:
    service.change_password("another-password")
    printed = call("frameworks")
    assert (printed.code, printed.out) == (2, "")
    assert printed.err.startswith("error: ")
    assert "password" not in printed.err.replace("login and password", "")
