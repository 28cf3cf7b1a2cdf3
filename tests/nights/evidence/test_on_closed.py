"""Who is told that a night is closed, and what."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from email import message_from_string
from email.header import decode_header, make_header
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import BaseNotifier

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.runtime.compat import HAS_FORMS
from tests.support.attempts import heard
from tests.support.nights import Nights, cell, context_of, decision, document, finding

GUIDE = Path(__file__).parents[3] / "docs/alerting.md"
HEADLINE = "1 verdict got worse. Of 2 documents, 1 is new or changed and 1 failed."


def close(nights: Nights, *callbacks: Any, **parameters: Any) -> dict[str, Any]:
    """Close a night in which one document failed, and one verdict got worse."""
    found = finding(
        "a.pdf", "C-1", category="MISSING", changed_from="SUFFICIENTLY_REGULATED", change_reason="document"
    )
    given = {
        "ingested": {
            "manifest": nights.write(
                "m.jsonl",
                [
                    document("a.pdf"),
                    document("b.pdf", "FAILED", error="It is damaged.", failure_kind="failed"),
                ],
            )
        },
        "assessed": {
            "assessments": nights.write("c.jsonl", [cell("a.pdf")]),
            "findings": nights.write("f.jsonl", [found]),
            "report": "",
            "categories": {},
        },
    }
    task = ComplianceCloseNightOperator(
        task_id="close", destination=nights.destination(1), on_closed=callbacks, **{**given, **parameters}
    )
    context: Any = {**context_of(1), "dag": None}
    result: dict[str, Any] = heard(task).execute(context)
    return result


def test_callbacks_get_what_a_person_wants_to_read(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/a/")
    told: list[Any] = []
    result = close(nights, lambda context: told.append(context["night"]))
    (night,) = told
    assert night["headline"] == HEADLINE == result["headline"]
    assert (night["date"], night["revision"], night["tone"]) == ("2026-03-01", 1, "bad")
    assert night["report"] == result["report"]
    assert night["changes"] == [
        {
            "document": "a.pdf",
            "documents": 1,
            "framework": "DORA",
            "criterion": "C-1",
            "before": "sufficiently regulated",
            "now": "missing",
            "change_reason": "new text",
            "decision": "open",
        }
    ]
    failure = {"reason": "It is damaged.", "failure_kind": "failed", "documents": 1, "document": "b.pdf"}
    assert night["failed"] == [failure]
    assert (night["missing"], night["vanished"], night["open"]) == ([], [], 1)
    run = "https://airflow.example.com/a/dags/d/runs/run-1/required_actions?response_received=false"
    page = "https://airflow.example.com/a/compliance/reports/d/run-1/close/-1"
    assert (night["report_url"], night["forms_url"]) == ((page, run) if HAS_FORMS else (result["report"], ""))
    json.dumps(night)


def test_a_night_is_told_again_only_with_something_new(nights: Nights) -> None:
    told: list[int] = []

    def tell(context: Any) -> None:
        told.append(context["night"]["revision"])

    close(nights, tell)
    close(nights, tell)
    assert told == [1]
    close(nights, tell, reviewed=nights.write("d.jsonl", [decision("a.pdf")]))
    assert told == [1, 2]


def test_a_callback_that_fails_is_a_warning_without_secrets(
    nights: Nights, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def fail(context: Any) -> None:
        raise RuntimeError("Refused: https://hooks.example.com/?token=s3cr3t-t0ken")

    result = close(nights, fail, lambda context: told.append(context["night"]["headline"]))
    assert result["night"]
    assert told == [HEADLINE]
    (warning,) = [record.message for record in caplog.records if "on_closed" in record.message]
    assert warning.startswith("on_closed: fail failed: RuntimeError: Refused: https://hooks.example.com/")
    assert "s3cr3t-t0ken" not in caplog.text


def test_a_callback_that_exits_or_empties_the_context_does_not_fail_the_night(nights: Nights) -> None:
    told: list[str] = []

    def leave(context: Any) -> None:
        context.clear()
        raise SystemExit(3)

    assert close(nights, leave, lambda context: told.append(context["ti"].task_id))["revision"] == 1
    assert told == ["close"]


def test_secrets_in_addresses_of_documents_are_told_no_one(nights: Nights) -> None:
    source = "https://user:s3cr3t@example.com/a.pdf"
    rows = [document(source, "FAILED", error=f"Fetching {source} failed.")]
    told: list[Any] = []
    close(
        nights,
        lambda context: told.append(context["night"]),
        ingested={"manifest": nights.write("secret.jsonl", rows)},
    )
    assert "Fetching" in str(told), told
    assert "s3cr3t" not in str(told)


def test_a_callback_has_to_be_callable() -> None:
    with pytest.raises(ComplianceInputError, match="on_closed takes notifiers or functions"):
        ComplianceCloseNightOperator(task_id="close", destination="s3://b/x/", on_closed=["slack"])  # type: ignore[list-item]  # what is tested


class Notifier(BaseNotifier):
    """A notifier with a template, such as those of Slack, e-mail and others."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        context["told"].append(self.text)


def test_templates_of_notifiers_know_the_night(nights: Nights) -> None:
    told: list[str] = []
    task = ComplianceCloseNightOperator(
        task_id="close",
        destination=nights.destination(1),
        ingested=nights.ingested("1", a="COMPLETED"),
        on_closed=Notifier("{{ night.date }}: {{ night.headline }} {{ night.counts.documents }}"),
    )
    context: Any = {**context_of(1), "dag": None, "told": told}
    task.execute(context)
    assert told == ["2026-03-01: Of 1 document, 1 is new or changed. 1"]


# -- the recipes of the guide


def recipe(name: str) -> dict[str, Any]:
    """Run the definitions of a recipe, without the DAG below them."""
    (source,) = re.findall(rf"^```python\n# {name}\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    defined: dict[str, Any] = {}
    exec(source.partition("\nwith DAG(")[0], defined)
    return defined


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """A server that takes JSON; its address, and what it got."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Be silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", got
        server.shutdown()
        thread.join()


def test_the_recipe_for_slack_posts_what_happened(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, webhook: tuple[str, list[Any]]
) -> None:
    url, got = webhook
    connection = {"conn_type": "generic", "password": url}
    monkeypatch.setenv("AIRFLOW_CONN_SLACK_WEBHOOK", json.dumps(connection))
    close(nights, recipe("webhook.py")["tell_slack"])
    first, *lines, last = got[0]["text"].splitlines()
    assert first.startswith(f"*Most failed*: {HEADLINE} <")
    assert lines == [
        "• 1 x C-1: missing, was sufficiently regulated (new text), as in a.pdf",
        "• 1 failed, as b.pdf: It is damaged.",
    ]
    assert last.startswith("Verdicts that wait for an expert: 1, ")


@pytest.fixture
def mailbox() -> Iterator[tuple[int, list[str]]]:
    """A mail server for one message; its port, and what it got."""
    got: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rw", newline="\r\n") as stream:

            def reply(line: str) -> None:
                stream.write(f"{line}\n")
                stream.flush()

            reply("220 ready")
            while line := stream.readline().strip():
                if line.upper() == "DATA":
                    reply("354 go on")
                    text = ""
                    while (part := stream.readline()) != ".\n" and part.strip() != ".":
                        text += part
                    got.append(text)
                reply("221 bye" if line.upper() == "QUIT" else "250 ok")
                if line.upper() == "QUIT":
                    return

    thread = Thread(target=serve, daemon=True)
    thread.start()
    yield listening.getsockname()[1], got
    listening.close()
    thread.join(timeout=30)


def test_the_recipe_for_mail_attaches_the_report(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, mailbox: tuple[int, list[str]]
) -> None:
    pytest.importorskip("airflow.providers.smtp")
    port, got = mailbox
    connection = {
        "conn_type": "smtp", "host": "127.0.0.1", "port": port,
        "extra": {"disable_ssl": True, "disable_tls": True, "retry_limit": 1},
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
    result = close(nights, recipe("mail.py")["mail_report"])
    message = message_from_string(got[0])
    assert str(make_header(decode_header(str(message["Subject"])))).startswith("2026-03-01: ")
    _, body, attached = message.walk()
    assert HEADLINE.encode() in bytes(body.get_payload(decode=True))
    report = Path(result["report"].removeprefix("file://")).read_bytes()
    assert bytes(attached.get_payload(decode=True)).splitlines() == report.splitlines()
