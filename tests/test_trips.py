"""Through how much of the package one thing runs, and how much the first thing that a DAG imports loads.

`pytest -p tests.support.trips -v tests/test_trips.py` says which files.
The limits only go down: 26, 45 and 75 files are the goal.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_docx
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.sensors.content import ComplianceContentSensor
from tests.support.attempts import Attempts
from tests.support.jobs import running
from tests.support.speed import speed_up
from tests.support.trips import PACKAGE, Trip, travel

GUIDE = PACKAGE.parent / "CONTRIBUTING.md"


@pytest.fixture(autouse=True)
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    speed_up(monkeypatch)
    return compliance_service


def check(trip: Trip, title: str, files: int) -> None:
    (told,) = re.findall(rf"- \*\*{title}\*\*:(.*?)\n(?:-|\n)", GUIDE.read_text(), re.DOTALL)
    assert set(re.findall(r"`([\w/]+\.py)`", told)) <= {*trip.files}, (
        "the contributor guide tells another trip"
    )
    assert len(trip.files) <= files, "\n".join(trip.functions)


def ingest(folder: Path) -> ComplianceIngestOperator:
    (folder / "a.docx").write_bytes(make_docx("Contract.", "An exit plan with a transition period."))
    return ComplianceIngestOperator(
        task_id="ingest", sources=f"{folder}/a.docx", destination=f"{folder}/out/", poll_interval=0.1
    )


def test_a_deferred_uuid(service: Emulator) -> None:
    uuid = running(service)
    attempts = Attempts(while_deferred=lambda _: service.set_job(uuid, status="COMPLETED"))
    task = ComplianceContentSensor(task_id="t", uuid=uuid, poll_interval=0.05, deferrable=True)
    with travel("a deferred uuid through the sensor") as trip:
        attempts.run(task)
    check(trip, "A uuid through the deferred sensor", 33)


def test_a_document(tmp_path: Path) -> None:
    task = ingest(tmp_path)
    with travel("a document to its manifest row") as trip:
        assert Attempts().run(task)["completed"] == 1
    check(trip, "A document to its manifest row", 62)


def test_a_finding(tmp_path: Path) -> None:
    ingested = Attempts().run(ingest(tmp_path))
    out = f"{tmp_path}/out/"
    assess = ComplianceAssessOperator(
        task_id="assess", documents=ingested, frameworks=["DORA"], destination=out, poll_interval=0.1
    )
    with travel("a finding to the closed night") as trip:
        assessed = Attempts().run(assess)
        close = ComplianceCloseNightOperator(
            task_id="close", ingested=ingested, assessed=assessed, destination=out
        )
        Attempts().run(close)
    check(trip, "A finding to the closed night", 80)


class ImportsOf(ast.NodeVisitor):
    """The modules of the package that a module imports, also later in a task; not for type checkers only."""

    def __init__(self, module: str) -> None:
        self.found: set[str] = set()
        self.visit(ast.parse(path_of(module).read_text()))

    def visit_If(self, node: ast.If) -> None:
        for child in node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else ast.iter_child_nodes(node):
            self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        self.found |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        parent = str(node.module)
        self.found |= {parent, *(f"{parent}.{alias.name}" for alias in node.names)}


def path_of(module: str) -> Path:
    path = PACKAGE.parent / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def closure(module: str) -> set[str]:
    found, new = set[str](), {module}
    while new:
        found |= new
        imported = {name for one in new for name in ImportsOf(one).found}
        ours = {name for name in imported if name.partition(".")[0] == PACKAGE.name}
        new = {name for name in ours if path_of(name).exists()} - found
    return found


@pytest.mark.parametrize(
    ("door", "files", "lines"),
    [
        ("operators.content", 59, 11_500),
        ("sensors.content", 54, 10_500),
        ("transfers.content_to_object_storage", 56, 10_900),
    ],
)
def test_doors_of_the_provider_import_little_and_nothing_of_the_nights(
    door: str, files: int, lines: int
) -> None:
    names = closure(f"{PACKAGE.name}.{door}")
    assert not [name for name in names if ".nights" in name]
    assert len(names) <= files, sorted(names)
    assert sum(len(path_of(name).read_text().splitlines()) for name in names) <= lines
