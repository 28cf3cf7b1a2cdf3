"""The pages inside Airflow: who sees what, and that hostile names and broken stores do no harm."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

pytest.importorskip(
    "airflow.api_fastapi.core_api.security", reason="Airflow 2 has no API server with FastAPI"
)

import sqlalchemy
from airflow.api_fastapi.core_api.security import get_user
from airflow.models import import_all_models
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.state import State
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from airflow_provider.nights.evidence.chain import Chain
from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey
from airflow_provider.nights.reports.documents import MAX_DOCUMENTS
from airflow_provider.nights.review.form import CATEGORY, RATIONALE, Form
from airflow_provider.nights.review.selection import ReviewedFinding
from airflow_provider.operators.base import ROOT_KEY
from airflow_provider.operators.links import REPORT_KEY
from airflow_provider.pages import app as pages
from airflow_provider.pages import nights
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import digest

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\n[x](javascript:alert(1))"
REPORT_NAME = f"_night/report-{'0' * 16}.html"


class Place:
    """A root with closed nights, and what Airflow's database says about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = f"file://{folder}/"
        self.id = digest(self.root)
        self.readable = {"nightly"}
        self.xcoms: dict[tuple[str, str], Any] = {(ROOT_KEY, "nightly"): self.root}
        self.more: list[str] = []  # reports of other tasks
        self.open_forms: dict[tuple[str, str], int] = {}

    def find(self, key: str, **wanted: Any) -> list[Any]:
        dag_ids = wanted["dag_id"] if isinstance(wanted["dag_id"], list) else [wanted["dag_id"]]
        found = [value for (name, dag_id), value in self.xcoms.items() if name == key and dag_id in dag_ids]
        return found + (self.more if key == REPORT_KEY else [])

    def close(self, night: str, dag_id: str = "nightly", report: str = "", **record: Any) -> None:
        name = f"_night/report-{hashlib.sha256(night.encode()).hexdigest()[:16]}.html"
        self.write(name, f"<h1>Report of {night}</h1>")
        made: dict[str, Any] = {"night": night, "run": f"{dag_id}/{night}", "dag_id": dag_id, "run_id": night}
        made |= {"destination": "", "totals": {"documents": 3}, "report": {"path": report or name}}
        Chain(Location(self.root)).append(lambda _: {**made, **record})

    def write(self, name: str, text: str) -> Location:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return Location(f"{self.root}{name}")

    def publish(
        self, kind: str, day: str, table: str, rows: list[dict[str, Any]], dag_id: str = "nightly"
    ) -> None:
        content = "".join(f"{json.dumps(row)}\n" for row in rows)
        written = self.write(f"{dag_id}/{day}/{table}.jsonl", content)
        earlier = EarlierNights(
            Location(self.root),
            kind,
            Night(f"{day}T00:00:00+00:00", f"{dag_id}/{day}"),
            TaskKey(dag_id, kind),
            "account",
        )
        earlier.publish({table: Table.of(written, content.encode())}, [row["source"] for row in rows])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path / "nights")
    made.folder.mkdir()
    monkeypatch.setattr(nights, "_xcoms", made.find)
    monkeypatch.setattr(nights, "count_open_forms", lambda dag_ids: made.open_forms)

    class AuthManager:
        def get_authorized_dag_ids(self, *, user: Any) -> set[str]:
            return made.readable

    monkeypatch.setattr(pages, "get_auth_manager", AuthManager)
    return made


Get = Callable[..., Any]


@pytest.fixture
def get(place: Place) -> Get:
    app = pages.make_app.__wrapped__()
    app.dependency_overrides[get_user] = lambda: "user"
    client = TestClient(app, raise_server_exceptions=False)

    def send(path: str, **query: str) -> Any:
        return client.get(path, params=query or None)

    return send


def test_nights_are_listed_newest_first_in_their_latest_revision(place: Place, get: Get) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    place.close("2026-03-03T00:00:00+00:00")
    place.close("2026-03-02T00:00:00+00:00")  # a backfill
    place.close("2026-03-01T00:00:00+00:00")  # again, with decisions

    shown = get("/")

    assert shown.status_code == 200
    assert re.findall(rf'/nights/{place.id}/(\d)">([^,]+)', shown.text) == [
        ("2", "3 Mar 2026"),
        ("3", "2 Mar 2026"),
        ("4", "1 Mar 2026"),
    ]
    assert "Report of 2026-03-03" in get(f"/nights/{place.id}/2").text


def test_failed_and_changed_documents_of_a_night_are_one_click_away(place: Place, get: Get) -> None:
    place.close("2026-03-01", totals={"failed": 3, "changed": 2, "open": 0, "documents": 9})
    found = re.findall(rf'/nights/{place.id}/1#([\w-]+)">(\d+)</a>', get("/").text)
    assert found == [("why-documents-failed", "3"), ("what-changed-since-the-night-before", "2")]


def test_nights_say_how_many_forms_wait_for_an_answer(place: Place, get: Get) -> None:
    for day in ("2026-03-01", "2026-03-02"):
        place.close(day, totals={"decisions": 4})
    place.open_forms = {("nightly", "2026-03-02"): 2}
    cells = re.findall(r'data-label="Decisions">(.*?)</td>', get("/").text)
    forms = "/dags/nightly/runs/2026-03-02/required_actions?response_received=false"
    assert cells == [f'4<div><a href="{forms}">2 forms waiting</a></div>', "4"]


def test_forms_count_as_open_until_they_are_answered_or_their_task_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import_all_models()  # foreign keys name their tables
    engine = sqlalchemy.create_engine("sqlite://")
    waiting = "awaiting_input" if hasattr(State, "AWAITING_INPUT") else "deferred"
    answered = datetime(2026, 3, 2, tzinfo=UTC)
    forms = [(waiting, None), (waiting, None), (waiting, answered), ("success", None), ("failed", None)]
    with Session(engine) as session:
        for model in (TaskInstance, HITLDetail):
            model.__table__.create(session.connection())
        for number, (state, answered_at) in enumerate(forms):
            task = {"dag_id": "nightly", "run_id": "r", "task_id": "review", "map_index": number}
            task |= {"id": uuid4(), "state": state, "try_number": 1, "max_tries": 0, "pool": "p"}
            session.execute(TaskInstance.__table__.insert().values(**task, pool_slots=1))
            form = {"ti_id": task["id"], "options": [], "subject": "s", "responded_at": answered_at}
            session.execute(HITLDetail.__table__.insert().values(**form))
        monkeypatch.setattr("airflow.utils.session.create_session", lambda scoped: nullcontext(session))
        assert nights.count_open_forms({"nightly"}) == {("nightly", "r"): 2}
        assert nights.count_open_forms({"other"}) == {}


def test_only_those_who_may_read_the_dag_see_its_nights(
    place: Place, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    place.close("2026-03-02T00:00:00+00:00", dag_id="secret")
    place.xcoms[REPORT_KEY, "secret"] = f"{place.root}{REPORT_NAME}"
    assert "secret" not in get("/").text
    assert get(f"/nights/{place.id}/2").status_code == 404
    assert get("/reports/secret/run/close/-1").status_code == 403

    place.readable = set()
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__ROOTS", '["s3://missing_connection@bucket/"]')

    for path in (f"/nights/{place.id}/1", f"/documents/{place.id}", f"/document/{place.id}?source=a"):
        assert get(path).status_code == 404
    assert "No DAG that you have access to" in get("/").text
    place.readable = {"nightly"}
    assert "missing_connection" in get("/").text


def test_documents_of_other_dags_below_the_same_root_are_not_shown(place: Place, get: Get) -> None:
    secret = {"source": "s3://in/secret.pdf", "status": "COMPLETED"}
    place.publish("ingest", "2026-03-01", "manifest", [secret], dag_id="secret")
    place.publish("ingest", "2026-03-01", "manifest", [{"source": "s3://in/open.pdf"}])
    shown = get(f"/documents/{place.id}", text="pdf").text
    assert ("open.pdf" in shown, "secret.pdf" in shown) == (True, False)
    assert get(f"/document/{place.id}", source="s3://in/secret.pdf").status_code == 404


def test_nothing_is_shown_to_those_who_are_not_signed_in(place: Place) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    client = TestClient(pages.make_app.__wrapped__())
    for path in ("/", f"/nights/{place.id}/1", "/reports/nightly/run/close/-1", f"/documents/{place.id}"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert "Sign in to Airflow" in answer.text


def test_report_runs_in_an_origin_of_its_own(place: Place, get: Get) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    place.write(REPORT_NAME, "<h1>Report</h1>")
    place.xcoms[REPORT_KEY, "nightly"] = f"{place.root}{REPORT_NAME}"
    for path in (f"/nights/{place.id}/1", "/reports/nightly/run/close/-1"):
        headers = get(path).headers
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["content-security-policy"].startswith(
            "sandbox allow-scripts allow-popups; default-src 'none'"
        )
        assert "allow-same-origin" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "private, no-store"


def test_page_of_a_run_is_the_report_of_its_night_or_one_of_its_documents(place: Place, get: Get) -> None:
    row = {"source": "s3://in/a&b.pdf", "status": "COMPLETED"}
    place.publish("ingest", "2026-03-01", "manifest", [row])
    uris = ["_night/report-0123456789abcdef.html", "_ingest/d/report.html", "_assess/d/report.html"]
    for uri in uris[::-1]:  # what a run has so far, and what it has in the end
        place.write(uri, uri)
        place.xcoms[REPORT_KEY, "nightly"] = f"{place.root}{uri}"
        assert get("/runs/nightly/run").text == uri
    place.more = [f"{place.root}{uri}" for uri in uris]
    assert get("/runs/nightly/run").text == uris[0]
    shown = get("/runs/nightly/run", source=row["source"])
    assert str(shown.url).endswith(f"/document/{place.id}?source={quote(row['source'], safe='')}")
    assert "a&amp;b.pdf" in shown.text
    assert get("/runs/secret/run").status_code == 403


def test_roots_and_reports_are_found_in_the_results_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    import_all_models()
    engine = sqlalchemy.create_engine("sqlite://")
    report, newest = f"s3://out/{REPORT_NAME}", f"s3://out/_night/report-{'1' * 16}.html"
    pushed = [
        ("nightly", "r", "close", -1, ROOT_KEY, "s3://out/"),
        ("nightly", "s", "close", -1, ROOT_KEY, "s3://out/"),
        ("nightly", "r", "ingest", 3, REPORT_KEY, report),
        ("nightly", "r", "ingest", 3, "return_value", "s3://not-a-root/"),
        ("secret", "r", "close", -1, ROOT_KEY, "s3://secret/"),
        ("nightly", "r", "close_reviewed", -1, REPORT_KEY, newest),
        ("nightly", "r", "close", -1, REPORT_KEY, report),
        ("nightly", "r", "assess", -1, REPORT_KEY, "s3://out/_assess/d/report.html"),
        ("nightly", "t", "assess", -1, REPORT_KEY, "s3://out/_assess/d/report.html"),
        ("nightly", "t", "ingest", -1, REPORT_KEY, "s3://out/_ingest/d/report.html"),
    ]
    with Session(engine) as session:
        XComModel.__table__.create(session.connection())
        for number, (dag_id, run_id, task_id, map_index, key, value) in enumerate(pushed):
            row = {"dag_run_id": number, "dag_id": dag_id, "run_id": run_id, "task_id": task_id}
            minute = 30 if value == newest else number
            row |= {"timestamp": datetime(2026, 3, 2, 1, minute, tzinfo=UTC)}
            row |= {"map_index": map_index, "key": key, "value": value}
            session.execute(XComModel.__table__.insert().values(**row))
        monkeypatch.setattr("airflow.utils.session.create_session", lambda scoped: nullcontext(session))
        assert nights.find_roots({"nightly", "other"}) == {digest("s3://out/"): "s3://out/"}
        assert nights.find_roots({"other"}) == {}
        task = {"dag_id": "nightly", "run_id": "r", "task_id": "ingest"}
        assert str(nights.find_report(**task, map_index=3)) == report
        assert nights.find_report(**task, map_index=4) is None
        assert [
            (root, report and report.uri)
            for root, report in (nights.find_run("nightly", run) for run in "rtu")
        ] == [("s3://out/", newest), ("", "s3://out/_assess/d/report.html"), ("", None)]


def test_links_have_the_path_that_the_api_server_is_below(place: Place) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    app = pages.make_app.__wrapped__()
    app.dependency_overrides[get_user] = lambda: "user"
    for report in (place.folder / "_night").iterdir():
        report.write_text("<body>")
    client = TestClient(app, root_path="/airflow/compliance")
    shown = client.get("/").text + client.get(f"/nights/{place.id}/1").text
    assert 'href="/airflow/dags/nightly/runs/' in shown
    shown = shown.replace('"/airflow/dags/', '"/airflow/compliance/')
    found = re.findall(r'(?:href|action)="(/[^"]*)"', shown)
    assert found
    assert all(link.startswith("/airflow/compliance/") for link in found)


def test_text_of_a_document_is_shown_escaped_and_only_from_below_the_root(
    place: Place, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Clause 1 <script>alert(1)</script> Â§ 28\n" * 3
    written = place.write("dt=1/texts/a.txt", text)
    outside = place.folder.parent / "secret.txt"
    outside.write_text("secret")
    paths = {"a": written.uri, "b": f"file://{outside}", "c": f"{place.root}../secret.txt", "d": ""}
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    rows = [{"source": name, "path": path, "sha256": sha256, "bytes": 9} for name, path in paths.items()]
    place.publish("ingest", "2026-03-01", "manifest", rows)
    place.publish("ingest", "2026-03-01", "manifest", [{**rows[0], "source": "x"}], dag_id="secret")
    shown = get(f"/text/{place.id}", source="a", sha256=sha256)
    assert shown.text.startswith("<!DOCTYPE html>")
    assert '<pre class="text">Clause 1' in shown.text
    assert shown.text.count("Clause 1 &lt;script&gt;alert(1)&lt;/script&gt; Â§ 28") == 3
    assert "<script>" not in shown.text
    assert "sandbox" in shown.headers["content-security-policy"]
    assert f'href="/document/{place.id}?source=a"' in shown.text
    assert "not as it was recorded" not in shown.text
    for source in ("b", "c", "d", "x", "unknown"):
        answer = get(f"/text/{place.id}", source=source)
        assert (answer.status_code, "secret" in answer.text) == (404, False)
    assert get(f"/text/{place.id}", source="a", sha256="0").status_code == 404
    written.fs.pipe_file(written.path, b"forged \xff")
    assert "This text is not as it was recorded." in get(f"/text/{place.id}", source="a").text
    monkeypatch.setattr(pages, "MAX_TEXT_BYTES", 3)
    assert "Only the first " in get(f"/text/{place.id}", source="a").text
    place.readable = set()
    assert get(f"/text/{place.id}", source="a").status_code == 404


def test_report_leads_to_the_nights_around_it_to_its_forms_and_to_its_documents(
    place: Place, get: Get
) -> None:
    for day in ("2026-03-01", "2026-03-02", "2026-03-03"):
        place.close(day)
    place.close("2026-03-02")  # again, with decisions
    report = place.write(
        f"_night/report-{hashlib.sha256(b'2026-03-02').hexdigest()[:16]}.html", "<body><h1>R</h1>"
    )
    shown = get(f"/nights/{place.id}/2").text
    assert shown.startswith("<body><nav>")
    links = {label: address for address, label in re.findall(r'<a href="([^"]*)">([^<]*)</a>', shown)}
    run = "/dags/nightly/runs/2026-03-02"
    assert links == {
        "All nights": "/",
        "A later record replaces this one": f"/nights/{place.id}/4",
        "Next night": f"/nights/{place.id}/3",
        "Previous night": f"/nights/{place.id}/1",
        "Forms": f"{run}/required_actions?response_received=false",
        "Run": run,
        "Find a document": f"/documents/{place.id}",
    }
    assert "<nav>" not in str(report.read())
    place.publish("ingest", "2026-03-01", "manifest", [{"source": "a b", "status": "COMPLETED"}])
    place.xcoms[REPORT_KEY, "nightly"] = report.uri
    for path in (f"/nights/{place.id}/2", "/reports/nightly/run/close/-1", "/runs/nightly/run"):
        assert str(get(path, source="a b").url).endswith(f"/document/{place.id}?source=a%20b")
        assert "<nav>" in get(path).text


def test_reports_of_a_run_and_of_its_tasks_lead_to_their_night_which_says_what_replaced_it(
    place: Place, get: Get
) -> None:
    for day in ("2026-03-01", "2026-03-02"):
        place.close(day)
    again = place.write(f"_night/report-{'1' * 16}.html", "<body>Revised")
    place.close("2026-03-02", report=again.uri.removeprefix(place.root))
    first = f"{place.root}_night/report-{hashlib.sha256(b'2026-03-02').hexdigest()[:16]}.html"
    place.xcoms[REPORT_KEY, "nightly"] = first
    place.write(first.removeprefix(place.root), "<body>First")
    shown = get("/reports/nightly/2026-03-02/close/-1")
    assert str(shown.url).endswith(f"/nights/{place.id}/2")
    assert "A later record replaces this one" in shown.text
    place.more = [again.uri]
    shown = get("/runs/nightly/2026-03-02")
    assert str(shown.url).endswith(f"/nights/{place.id}/3")
    assert "Revised" in shown.text


def test_decisions_are_counted_as_they_come(place: Place, get: Get) -> None:
    place.close("2026-03-02", totals={"decisions": 0})
    place.open_forms = {("nightly", "2026-03-02"): 1}
    rows = [{"source": "a", "decision": kind} for kind in ("agreed", "changed", "none")]
    place.publish("review", "2026-03-02", "decisions", rows)
    (cell,) = re.findall(r'data-label="Decisions">(.*?)</td>', get("/").text)
    assert cell.startswith("2<div>")


def test_what_is_gone_or_never_was_is_said_in_words(place: Place, get: Get) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    for path in (f"/nights/{place.id}/99", f"/nights/{place.id}/0", f"/nights/{place.id}/{'9' * 5000}",
                 f"/reports/nightly/run/close/{2**70}"):  # fmt: skip
        answer = get(path)
        assert answer.status_code == 404
        assert "<h1>" in answer.text
        assert "Restore" not in answer.text
    for record in place.folder.rglob("*.json"):
        record.unlink()
    assert "no nights any more" in get("/").text
    assert get(f"/nights/{place.id}/1").status_code == 404


def test_fault_of_our_own_is_a_page_too(place: Place, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nights, "count_open_forms", lambda dag_ids: 1 / 0)
    place.close("2026-03-01T00:00:00+00:00")
    answer = get("/")
    assert (answer.status_code, "log of the API server" in answer.text) == (500, True)


@pytest.mark.parametrize(
    "uri",
    [
        "/etc/passwd",
        "file:///etc/passwd",
        "/x/_ingest/../../etc/report.html",
        "s3://bucket/airflow.cfg",
        "",
        None,
    ],
)
def test_nothing_but_reports_is_served(place: Place, get: Get, uri: str | None) -> None:
    place.xcoms[REPORT_KEY, "nightly"] = uri
    assert get("/reports/nightly/run/close/-1").status_code == 404
    if uri:
        place.close("2026-03-01T00:00:00+00:00", report=uri)
        assert get(f"/nights/{place.id}/1").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/nights/../../etc/1",
        "/nights/%2e%2e%2f/1",
        "/nights/x/1",
        "/documents/%2Fetc",
        "/nights/x/abc",
        "/other",
    ],
)
def test_hostile_paths_are_refused(place: Place, get: Get, path: str) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    assert get(path).status_code in (404, 422)


def test_hostile_names_show_as_text(place: Place, get: Get) -> None:
    place.close("2026-03-01T00:00:00+00:00", run_id=HOSTILE, totals={"documents": HOSTILE})
    row = {
        "source": HOSTILE,
        "status": HOSTILE,
        "error": HOSTILE,
        "sha256": HOSTILE,
        "dag_id": HOSTILE,
        "run_id": HOSTILE,
    }
    finding = {
        "source": HOSTILE,
        "framework": HOSTILE,
        "criterion": HOSTILE,
        "category": HOSTILE,
        "changed_from": HOSTILE,
        "expert": HOSTILE,
    }
    place.publish("ingest", "2026-03-01", "manifest", [row])
    place.publish("assess", "2026-03-01", "findings", [finding])
    place.publish(
        "review",
        "2026-03-01",
        "decisions",
        [{"source": HOSTILE, "expert_id": HOSTILE, "rational_feedback": HOSTILE}],
    )
    for page in (
        get("/"),
        get(f"/documents/{place.id}", text=HOSTILE),
        get(f"/document/{place.id}", source=HOSTILE),
        get(f"/document/{place.id}", source="\0<script>"),
    ):
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
    assert get(f"/document/{place.id}", source=HOSTILE).status_code == 200


def test_document_shows_its_verdicts_of_all_nights(place: Place, get: Get) -> None:
    place.close("2026-03-02T00:00:00+00:00")
    for day, category, before in (
        ("2026-03-01", "MISSING", None),
        ("2026-03-02", "SUFFICIENTLY_REGULATED", "MISSING"),
    ):
        sources = [f"s3://in/{number}.pdf" for number in range(3)]
        place.publish(
            "ingest",
            day,
            "manifest",
            [{"source": name, "status": "COMPLETED", "bytes": 12, "path": f"{name}.txt"} for name in sources],
        )
        rows = [
            {
                "source": name,
                "framework": "DORA",
                "criterion": "exit",
                "category": category,
                "changed_from": before,
                "change_reason": before and "framework",
            }
            for name in sources
        ]
        place.publish("assess", day, "findings", rows)
    finding = ReviewedFinding(7, "exit", "MISSING", source="s3://in/1.pdf")
    answer = {f"{CATEGORY}7": "SUFFICIENTLY_REGULATED", f"{RATIONALE}7": "Annex 4."}
    (decision,), _ = Form([finding]).parse(answer)
    left = {"source": "s3://in/1.pdf", "criterion": "left", "decision": "none", "category_after": "MISSING"}
    rows = [{**decision, "expert_id": "ada"}, {**left, "expert_id": "ada"}, {**left, "decision": "expired"}]
    place.publish("review", "2026-03-02", "decisions", rows)

    found = get(f"/documents/{place.id}", text="IN/1")
    (link,) = re.findall(r'href="(/document/[^"]+)"', found.text)
    shown = get(link)

    assert quote("s3://in/1.pdf", safe="") in link
    assert "<title>s3://in/1.pdf Compliance nights</title>" in shown.text
    text = " ".join(re.sub(r"<[^>]+>", " ", shown.text.partition("<body>")[2]).split())
    assert "2026-03-02 COMPLETED 12 read s3://in/ 1.pdf.txt" in text
    change = "2026-03-02 from missing to sufficiently regulated: new version of the framework"
    assert f"DORA exit sufficiently regulated {change}" in text
    assert "exit missing sufficiently regulated Overruled by ada (not sent yet) Annex 4." in text
    assert text.count("left UNKNOWN missing Open") == 2

    forged = place.write(
        "nightly/2026-03-02/decisions.jsonl", json.dumps({**decision, "expert_id": "mallory"})
    )
    shown = get(link)
    assert "mallory" not in shown.text
    assert f"not as it was published:</b> {forged}" in shown.text


def test_search_of_many_documents_is_limited(place: Place, get: Get) -> None:
    rows = [{"source": f"s3://in/{number}.pdf", "status": "COMPLETED"} for number in range(10_000)]
    place.publish("ingest", "2026-03-01", "manifest", rows)
    shown = get(f"/documents/{place.id}", text="pdf")
    assert shown.text.count("<li>") == MAX_DOCUMENTS
    assert "Showing the first 200 documents" in shown.text
    assert get(f"/documents/{place.id}", text="9999.pdf").text.count("<li>") == 1


def test_store_that_fails_is_an_error_on_the_page(place: Place, get: Get) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    place.xcoms[ROOT_KEY, "other"] = "s3://missing_connection@bucket/nights/"
    place.readable = {"nightly", "other"}
    shown = get("/")
    assert shown.status_code == 200
    assert "2026-03-01" in shown.text
    assert "missing_connection" in shown.text
    for report in (place.folder / "_night").glob("report-*"):
        report.unlink()
    assert get(f"/nights/{place.id}/1").status_code == 502


def test_store_that_hangs_times_out(place: Place, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    place.close("2026-03-01T00:00:00+00:00")
    place.xcoms[ROOT_KEY, "other"] = "s3://down@bucket/nights/"
    place.readable = {"nightly", "other"}
    released, list_nights = threading.Event(), nights.list_nights
    monkeypatch.setattr(pages, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(
        nights, "list_nights", lambda root, _: released.wait(60) if "down" in root else list_nights(root, _)
    )
    monkeypatch.setattr(nights, "find_night_report", lambda *_: released.wait(60))
    listed, report = get("/"), get(f"/nights/{place.id}/1")
    released.set()
    assert (listed.status_code, report.status_code) == (200, 504)
    assert "2026-03-01" in listed.text
    assert "did not answer in time" in listed.text
    assert "did not answer in time" in report.text
