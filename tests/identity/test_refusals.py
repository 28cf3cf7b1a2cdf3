"""What the clients do and say when a real identity provider refuses them."""

from __future__ import annotations

import json
import logging
import traceback
from urllib.parse import quote, quote_plus

import pytest
from pydantic import SecretStr

from airflow_provider.exceptions import ComplianceAuthError
from tests.identity.conftest import Connect, Provider
from tests.identity.servers import FRAMEWORKS, TrustingService
from tests.support.service import Reply

pytestmark = pytest.mark.identity_provider

CROWD = 20
WRONG = SecretStr("no such secret, 100 %+& wröng")


def spellings(secret: str) -> set[str]:
    """How a secret may look in a text: as it is, in a URL or form, in JSON, in a Python literal."""
    return {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]}


def test_a_wrong_password_is_final_and_names_user_and_connection(
    connect: Connect, service: TrustingService
) -> None:
    client = connect(password=WRONG)
    with pytest.raises(ComplianceAuthError) as refused:
        client("list_frameworks")
    # Canaille says invalid_request, where RFC 6749 wants invalid_grant: so the client may be wrong as well.
    assert str(refused.value) == (
        "The identity provider refused user 'alice' (invalid_request: Invalid 'username' or 'password' in "
        "request.): check login and password, and the extras 'client_id' and 'client_secret' of the "
        "connection 'compliance_lab'."
    )
    assert not refused.value.transient
    assert service.outcomes == [("password", 400)]
    assert not service.authorizations


def test_a_wrong_password_is_tried_once_by_a_crowd(connect: Connect, service: TrustingService) -> None:
    client = connect(password=WRONG)
    service.slowness = 0.2
    errors = client.crowd(CROWD, "list_frameworks") + client.crowd(CROWD, "list_frameworks")
    assert {type(error) for error in errors} == {ComplianceAuthError}
    assert len({str(error) for error in errors}) == 1
    assert service.outcomes == [("password", 400)]


@pytest.mark.parametrize("wrong", [{"client_secret": WRONG}, {"client_id": "nobody"}])
def test_a_wrong_client_is_named_and_tried_once(
    connect: Connect, service: TrustingService, provider: Provider, wrong: dict[str, str | SecretStr]
) -> None:
    client = connect(**wrong)
    client_id = wrong.get("client_id", provider.client_id)
    for _ in range(3):
        with pytest.raises(ComplianceAuthError) as refused:
            client("list_frameworks")
        assert f"refused client '{client_id}' (invalid_client" in str(refused.value)
        assert "'client_id' and 'client_secret' of the connection 'compliance_lab'" in str(refused.value)
        assert provider.username not in str(refused.value)
    assert len(service.passed_on) == 1
    assert service.passed_on[0].answer["error"] == "invalid_client"


def test_no_secret_is_in_a_log_or_an_error(
    connect: Connect,
    service: TrustingService,
    provider: Provider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    client = connect()
    client("list_frameworks")
    service.refuse(CROWD)
    client.crowd(CROWD, "list_frameworks")
    service.on(FRAMEWORKS, Reply(401))
    service.answers_to_lose = 1
    errors = client.crowd(CROWD, "list_frameworks")
    errors += connect(password=WRONG).crowd(2, "list_frameworks") + connect(client_secret=WRONG).crowd(
        2, "list_frameworks"
    )
    shown = [caplog.text, *(f"{vars(record)}" for record in caplog.records)]
    for error in errors:
        assert isinstance(error, ComplianceAuthError)
        shown += [repr(error), *traceback.format_exception(error), f"{vars(error)}"]
    secrets = {provider.password, provider.client_secret, WRONG.get_secret_value(), *service.secrets}
    assert len(secrets) > 5
    assert "retrying in" in caplog.text, "the log is there"
    everything = "\n".join(shown)
    for secret in secrets:
        for spelling in spellings(secret):
            assert spelling not in everything
