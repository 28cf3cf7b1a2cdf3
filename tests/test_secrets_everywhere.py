"""Every kind of secret on every path into a log, an error, a repr, a report, a row or lineage."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider.cli.commands import run
from airflow_provider.client import endpoints
from airflow_provider.client.exchange import Exchange, ThrottlePause
from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.client.models import Assessment, ContentJob
from airflow_provider.exceptions import ComplianceError, ComplianceInputError
from airflow_provider.nights.bulk.items import Item
from airflow_provider.nights.reports.ingest import Run, render_report
from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.redaction.text import sanitize
from airflow_provider.runtime.object_paths import object_path
from airflow_provider.storage import lineage
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.waiting.kinds import to_record
from tests.support.values import UUID, settings_for

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJTRUNSRVQiOjF9.SECRET1"
NAMES = (
    "apikey", "sid", "ticket", "pw", "bearer", "creds", "passkey", "code", "token", "password",
    "client_secret", "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "AWSAccessKeyId",
    "X-Goog-Signature", "X-Goog-Credential", "GoogleAccessId", "sig", "Signature", "Key-Pair-Id",
    "SAMLResponse",
)  # fmt: skip
ADDRESSES = {
    "a login": "https://user:SECRET1@example.com/a",
    "a token before the host": "https://SECRET1@example.com/a",
    "a login of a store": "s3://AKIA:SECRET1@bucket/a",
    "a JWT in a path": f"https://example.com/{JWT}/a",
    "a fragment": "https://example.com/a#access_token=SECRET1",
    "a session in a path": "https://example.com/a;jsessionid=SECRET1",
    "an address in an address": f"https://example.com/?next={quote('https://u:SECRET1@h/', safe='')}",
    "Azure": "https://a.blob.core.windows.net/c/d?sv=2024-11-04&sp=r&se=2026&sig=SECRET1%3D",
    "CloudFront": "https://d1.cloudfront.net/d?Policy=SECRET1&Signature=SECRET1&Key-Pair-Id=KSECRET1",
    **{f"?{name}=": f"https://example.com/a?x=1&{name}=SECRET1" for name in NAMES},
}
TEXTS = {
    "a login without a scheme": "proxy user:SECRET1@proxy:3128 refused",
    "an account key": "AccountName=a;AccountKey=SECRET1==;EndpointSuffix=b",
    "a shared access signature": "SharedAccessSignature=sv=1&sig=SECRET1%3D&se=2",
    "a bearer token": "sent Bearer SECRET1",
    "basic authentication": "sent Basic SECRET1dXNlcg==",
    "an authorization header": "{'Authorization': 'Bearer SECRET1', 'Accept': '*'}",
    "a header of AWS": "Authorization: AWS4-HMAC-SHA256 Credential=SECRET1/x, Signature=SECRET1",
    "a key in a header": "X-Api-Key: SECRET1",
    "a JWT": f"token {JWT} has expired",
    "a cookie": "Cookie: a=SECRET1; b=SECRET1",
    "a cookie that is set": "Set-Cookie: sid=SECRET1; Path=/; HttpOnly",
    "JSON": '{"password": "SECRET1 SECRET1"}',
    "an assignment": "aws_secret_access_key = SECRET1",
    "a relative address": "/login?code=SECRET1&state=open",
    "a value with another quote": """{"password": "a'SECRET1"}""",
    "a value with an escaped quote": r'{"password": "a\"SECRET1"}',
    "a value in escaped JSON": r'{\"password\": \"a\\\"SECRET1\"}',
    "a value with a quote and no end": "password='a'SECRET1",
    "a value without quotes": "password: SECRET1",
    "a quoted cookie": 'Cookie: a="SECRET1 SECRET1"; b=SECRET1',
    "a cookie in JSON": r'{"Cookie": "a=\"SECRET1\"; b=SECRET1"}',
    "an address in JSON": r"https:\/\/user:SECRET1@example.com\/a",
    "a token in an address in JSON": r"https:\/\/SECRET1@example.com\/a",
    "a quoted address in a form": "next: https%3A%2F%2Fuser%3ASECRET1%40example.com%2Fa",
    "an address without a scheme": "//user:SECRET1@example.com/a",
    "a pair": "('password','SECRET1')",
    "a pair of bytes": '["password", b"SECRET1"]',
    "an element": "<password>SECRET1</password>",
    "an element with a namespace": '<a:Password type="x"><![CDATA[SECRET1]]></a:Password>',
    "an element in HTML": "&lt;password&gt;SECRET1&lt;/password&gt;",
    "an attribute": '<user name="a" password="SECRET1"/>',
    "a quoted address": "can't open 'https://user:SECRET1@example.com/a?b=1'.",
}  # fmt: skip


RUN = Run(dag_id="d", task_id="t", run_id="r")


def _answer(status: int, text: str, **headers: str) -> str:
    """Return all that there is of the error that a response of a service becomes."""
    settings = settings_for("https://h", max_retries=0)
    exchange: Exchange[Any] = Exchange(endpoints.get_status(UUID), settings, ThrottlePause())
    with pytest.raises(ComplianceError) as caught:
        exchange.evaluate(
            HttpResponse(status, headers, text.encode(errors="surrogateescape"), f"https://h/{UUID}")
        )
    return f"{caught.value} {caught.value!r} {vars(caught.value)}"


def _store_error(text: str) -> str:
    with pytest.raises(ComplianceError) as caught, storage_errors(Location("s3://c@b/k")):
        raise OSError(text)
    return "".join(traceback.format_exception(caught.value))


def _command(text: str) -> str:
    def fail(options: argparse.Namespace) -> int:
        raise RuntimeError(text)

    run(fail, argparse.Namespace())
    return ""  # it is printed


PATHS: dict[str, Callable[[str], object]] = {
    "an error": lambda text: f"{ComplianceInputError(text)} {ComplianceInputError(text)!r}",
    "the body of a refusal": lambda text: _answer(400, text),
    "a redirect": lambda text: _answer(302, "", location=f"/login?next={text}"),
    "a redirect after completion": lambda text: _answer(303, "", location=f"/login#{text}"),
    "a failed job": lambda text: to_record(ContentJob(uuid=UUID, error=text)),
    "the file of a job": lambda text: to_record(ContentJob(uuid=UUID, file_name=text)),
    "the type of a job": lambda text: to_record(ContentJob(uuid=UUID, source_type=text)),
    "a failed assessment": lambda text: to_record(Assessment(id=UUID, error=text)),
    "an error of a store": _store_error,
    "a row": lambda text: Item("k").describe(RuntimeError(text)),
    "an unexpected error of a command": _command,
    "a report": lambda text: render_report(
        [{"source": "a.pdf", "status": "FAILED", "error": text}],
        replace(RUN, destination=text),
    ),
    "one line": sanitize,
}
PATHS_OF_ADDRESSES: dict[str, Callable[[str], object]] = {
    "a job's page": lambda address: to_record(ContentJob(uuid=UUID, source_url=address)),
    "a location": lambda address: str(Location(address)),
    "lineage": lineage.uri_origin,
    "the title of a task": lambda address: ComplianceSubmitUrlOperator(task_id="t", url=address).title,
    "a redirect to it": lambda address: _answer(302, "", location=address),
    "a report of it": lambda address: render_report(
        [{"source": address, "status": "FAILED", "error": "x"}], RUN
    ),
}


@pytest.mark.parametrize("secret", [*ADDRESSES, *TEXTS])
def test_no_path_shows_a_secret(secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = ADDRESSES.get(secret) or TEXTS[secret]
    shown = {name: str(path(f"It said: {text}")) for name, path in PATHS.items()}
    if secret in ADDRESSES:
        shown |= {name: str(path(text)) for name, path in PATHS_OF_ADDRESSES.items()}
    shown["output"] = "".join(capsys.readouterr())
    assert [name for name, value in shown.items() if "SECRET1" in value] == []


@pytest.mark.parametrize("name", ["a\nERROR forged", "a\r\x1b[2Jb", "a\u2028b", "a\x00b", "a\udce4b"])
def test_a_file_name_never_forges_a_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [str(path(name)) for name_of, path in PATHS.items() if name_of not in ("a report",)]
    shown = [each for each in shown if not each.startswith("Traceback")]
    record = to_record(
        ContentJob(uuid=UUID, file_name=name, source_type=name, source_url=f"https://h/{name}")
    )
    shown += [record["file_name"], record["source_type"], record["source_url"]]
    shown += [str(Location(f"/in/{name}")), Item(name).label, *capsys.readouterr().err.splitlines()[1:]]
    assert [each for each in shown if not each.isprintable()] == []


def test_a_login_is_never_looked_up_as_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(BaseHook, "get_connection", asked.append)
    for uri in ("s3://AKIA:SECRET1@bucket/a", "s3://AKIA%3ASECRET1@bucket/a"):
        with pytest.raises(ComplianceInputError, match="the part before the @ is a login") as caught:
            object_path(uri)
        assert "SECRET1" not in str(caught.value)
    assert asked == []
