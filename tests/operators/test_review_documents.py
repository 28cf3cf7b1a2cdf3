"""A review says which document it is about: in its headline, its form, its map index and its decisions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow_provider import __version__
from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.runtime import compat
from airflow_provider.runtime.compat import awaiting_input
from tests.operators.hitl import RESULTS, FakeHitl, Made, sent

NAMED = [{**row, "frameworkCodeName": "DORA", "fileName": "cloud.pdf"} for row in RESULTS]


def form(hitl: FakeHitl) -> dict[str, Any]:
    assert hitl.form is not None
    return hitl.form


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ({"results": NAMED}, "cloud.pdf, DORA"),
        ({"results": {"document": {"name": "C"}, "framework": {"id": 2}, "results": RESULTS}}, "C"),
        ({"results": [*NAMED[:2], {**NAMED[2], "fileName": "other.pdf"}]}, "results, DORA"),
        ({"results": RESULTS}, "results"),
    ],
)
def test_the_headline_names_the_document_and_the_framework(
    service: Emulator, hitl: FakeHitl, given: dict[str, Any], subject: str
) -> None:
    hitl.run(Made(**given), "Decide later")
    named, _, counted = form(hitl)["subject"].partition(": ")
    assert named.removesuffix(", framework 2") == subject
    assert counted == "1 missing, 1 not sufficiently regulated, 1 sufficiently regulated"


# -- the map index


def test_a_mapped_review_has_the_name_of_its_document_before_and_after_it_is_answered(
    service: Emulator, hitl: FakeHitl, monkeypatch: pytest.MonkeyPatch
) -> None:
    comms = pytest.importorskip("airflow.sdk.execution_time.comms")
    if not hasattr(comms, "SetRenderedMapIndex"):
        pytest.skip("Airflow before 3.2 names a task when it ends")
    shown: list[str] = []
    supervisor = SimpleNamespace(send=lambda msg: shown.append(msg.rendered_map_index))
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", supervisor, raising=False)
    hitl.map_index = 0
    hitl.run(Made(results=NAMED), {"rest": "agreed"})
    assert shown == ["cloud.pdf, DORA"]
    assert hitl.context["map_index_template"] == compat.TITLE_TEMPLATE
    assert hitl.context["task"].title == "cloud.pdf, DORA"


# -- decisions at a destination


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_decisions_are_written_as_they_are_returned(
    service: Emulator, hitl: FakeHitl, tmp_path: Path
) -> None:
    path = tmp_path / "decisions.jsonl"
    returned = hitl.run(
        Made(results=NAMED, destination=str(path)), {"rest": "agreed", 2: ("MISSING", "Clause 2 is void.")}
    )
    assert rows(path) == returned
    for row in returned:
        assert (row["run_id"], row["try_number"], row["provider_version"]) == ("r", 1, __version__)
    assert [(row["document"], row["framework"], row["decision"]) for row in returned] == [
        ("cloud.pdf", "DORA", "agreed"),
        ("cloud.pdf", "DORA", "changed"),
        ("cloud.pdf", "DORA", "agreed"),
    ]


@pytest.mark.skipif(awaiting_input() is None, reason="Airflow before 3.3 has no task state store")
def test_decisions_on_file_say_what_was_sent_when_sending_failed(
    service: Emulator, hitl: FakeHitl, tmp_path: Path
) -> None:
    path = tmp_path / "decisions.jsonl"
    review = Made(destination=str(path))
    service.fail("submit_feedback", status=429, retry_after=0, skip=1)
    with pytest.raises(exc.ComplianceThrottledError):
        hitl.run(review, {1: ("MISSING", "One."), 2: ("MISSING", "Two."), "rest": "agreed"})
    assert [row["outcome"] for row in rows(path)] == ["sent", "pending", "recorded"]
    hitl.run(review)
    assert [row["outcome"] for row in rows(path)] == ["sent", "sent", "recorded"]
    assert len(sent(service)) == 2
