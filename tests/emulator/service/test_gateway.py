from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

from airflow_provider.emulator.settings import OPERATIONS
from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator

FRAMEWORKS = "/api/v1/frameworks"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_wants_a_token(service: Emulator, operation: str) -> None:
    method, path = OPERATIONS[operation]

    response = requests.request(
        method, service.url + path.format(uuid=1, framework_id=1, assessment_id=1), timeout=30
    )

    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="compliance"'
    assert service.count(operation, 401) == 1


def test_a_token_without_the_scope_gets_403(service: Emulator) -> None:
    service.add_user("guest", "secret", scope="profile")
    with Raw(service, "guest", "secret") as guest:
        response = guest.get(FRAMEWORKS)

    assert response.status_code == 403
    assert 'error="insufficient_scope"' in response.headers["WWW-Authenticate"]


def test_errors_are_json_with_the_fields_of_spring(raw: Raw) -> None:
    response = raw.status("no-such-job")

    assert response.status_code == 404
    assert response.headers["Content-Type"].startswith("application/json")
    body = response.json()
    assert body.keys() == {"timestamp", "status", "error", "message", "path"}
    assert (body["status"], body["error"]) == (404, "Not Found")
    assert body["path"] == f"{CONTENT}/no-such-job/status"


def test_a_wrong_method_gets_405_and_the_right_ones(raw: Raw) -> None:
    response = raw.call("PUT", FRAMEWORKS)

    assert response.status_code == 405
    assert response.headers["Allow"] == "GET"
    assert response.json()["error"] == "Method Not Allowed"


def test_an_unknown_path_gets_404_with_a_token_and_401_without(raw: Raw, service: Emulator) -> None:
    assert raw.get("/api/v1/nothing").status_code == 404
    assert requests.get(f"{service.url}/api/v1/nothing", timeout=30).status_code == 401


def test_an_error_of_the_emulator_itself_is_a_500_in_json_and_in_the_log(
    raw: Raw, service: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    service._state.frameworks = [{"nonsense": True}]

    response = raw.get(FRAMEWORKS)

    assert (response.status_code, response.json()["status"]) == (500, 500)
    assert "The emulator failed on GET /api/v1/frameworks" in caplog.text
