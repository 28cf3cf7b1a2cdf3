"""A program that runs the DAG of the README in one situation after the other.

Airflow's scheduler is `dag.test()`: what it decides about tasks and runs is Airflow's own code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.dag_test import ROOT, is_airflow_2, prepare

EXIT_PLAN = "An exit plan with a transition period."


class Nights:
    """The runs of a DAG below one root.

    :param base: the folder of the documents and of the nights
    """

    def __init__(self, dag: Any, base: str, service: Any) -> None:
        from airflow_provider.storage.locations import Location

        self.dag = dag
        self.service = service
        self.base = Location(base)
        self.texts: dict[int, str] = {}
        self.found: dict[str, Any] = {}

    def write(self, *texts: str) -> None:
        """Write the documents that change; a text of "" is a document that can't be read."""
        from airflow_provider.emulator.samples import make_docx

        for number in (number for number, text in enumerate(texts) if self.texts.get(number) != text):
            text = self.texts[number] = texts[number]
            content = make_docx(f"Contract {number}.", text) if text else b"PK\x03\x04 broken"
            location = self._place(number)
            location.fs.makedirs(location.path.rpartition("/")[0], exist_ok=True)
            location.fs.pipe_file(location.path, content)

    def _place(self, number: int) -> Any:
        """Return where a document is: the first two are one shard, and the others are another one."""
        from airflow_provider.nights.index.ranges import HASH_BITS, hash_of

        places = (self.base / f"documents/{number}-{attempt}.docx" for attempt in count())
        return next(place for place in places if hash_of(place.uri) >> (HASH_BITS - 1) == number // 2)

    def run(self, situation: str, day: int, hour: int = 2) -> None:
        """Run a night."""
        self._test(situation, datetime(2026, 3, day, hour, tzinfo=UTC))

    def clear(self, situation: str, of: str, task_id: str) -> None:
        """Clear a task of the run of another situation, with all after it, and let the run go on."""
        from airflow.models.taskinstance import clear_task_instances
        from airflow.utils.session import create_session

        task = self.dag.get_task(task_id)
        wanted = {task_id, *task.get_flat_relative_ids(upstream=False)}
        with create_session() as session:
            run = _run_of(self.found[of]["run_id"], session)
            tis = [one for one in run.get_task_instances(session=session) if one.task_id in wanted]
            clear_task_instances(tis, session, **({"dag": self.dag} if is_airflow_2() else {}))
            date = run.logical_date
        with _resumed(self.found[of]["run_id"]):
            self._test(situation, date)

    def lose_shard(self, of: str) -> None:
        """Remove the list of the second shard of a run."""
        run = self.found[of]["run_id"]
        fs = self.base.fs
        fs.invalidate_cache()
        (lost,) = [path for path in fs.find(self.base.path) if f"run={run}/_work/shards/00002/00001-" in path]
        fs.rm_file(lost)

    def _test(self, situation: str, date: datetime) -> None:
        run = self.dag.test(**{"execution_date" if is_airflow_2() else "logical_date": date})
        states: dict[str, list[str]] = {}
        tries: dict[str, int] = {}
        for one in sorted(run.get_task_instances(), key=lambda one: one.map_index):
            name = one.task_id.removeprefix("night.")
            states.setdefault(name, []).append(str(one.state))
            tries[name] = max(tries.get(name, 0), one.try_number)
        records = [record for record in self._records() if record["run_id"] == run.run_id]
        self.found[situation] = {
            "run_id": run.run_id,
            "state": str(run.state),
            "tries": tries,
            "tasks": {name: " ".join(found) for name, found in states.items()},
            "totals": records[-1]["totals"],
            "revisions": [record["revision"] for record in records],
        }

    def _records(self) -> list[dict[str, Any]]:
        """Return all records of evidence, oldest first."""
        folder = self.base / "nights/_evidence/nights"
        folder.fs.invalidate_cache()
        return [json.loads(folder.fs.cat_file(name)) for name in sorted(folder.fs.find(folder.path))]

    def digest(self, situation: str) -> str:
        """Return a digest of all that the run of a situation has written."""
        run_id = self.found[situation]["run_id"]
        fs, found = self.base.fs, hashlib.sha256()
        fs.invalidate_cache()
        for name in sorted(fs.find((self.base / "nights").path)):
            if f"run={run_id}" in name:
                found.update(f"{name}\n".encode() + fs.cat_file(name))
        return found.hexdigest()


def _run_of(run_id: str, session: Any) -> Any:
    from airflow.models.dagrun import DagRun

    return session.query(DagRun).filter(DagRun.run_id == run_id).one()


@contextmanager
def _resumed(run_id: str) -> Iterator[None]:
    """Let `dag.test()` go on with a run, where it else begins with a new one."""

    def find(*, dag: Any, session: Any, **_: Any) -> Any:
        run = _run_of(run_id, session)
        run.dag, run.state = dag, "running"
        session.commit()
        return run

    clearing = "airflow.models.dag.DAG.clear"
    finding = "airflow.models.dag._get_or_create_dagrun"
    if not is_airflow_2():
        clearing = "airflow.serialization.serialized_objects.SerializedDAG.clear_dags"
        finding = "airflow.models.dagrun.get_or_create_dagrun"
    with mock.patch(clearing), mock.patch(finding, find):
        yield


def write_dag(path: Path, base: str, options: str) -> None:
    """Write the DAG that the README prints, with another folder, and more options."""
    readme = (ROOT / "README.md").read_text()
    (source,) = re.findall(r"```python\n(.*?compliance_night\(.*?)```", readme, re.DOTALL)
    changes = {
        'f"file://{Path.home()}/compliance"': repr(base),
        "catchup=False)": "catchup=False) as dag",
        'nights/")': f'nights/", {options})',
    }
    for old, new in changes.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    path.parent.mkdir()
    path.write_text(source)


def run_situations(nights: Nights) -> None:
    """Run them in order; a backfill comes after later nights."""
    good, bad = EXIT_PLAN, "Nothing of interest."
    nights.write(good, good, bad, bad)
    nights.run("good night", 10)
    nights.write(good, good, bad, good)
    nights.run("changed verdict, no answer", 12)
    before = nights.digest("changed verdict, no answer")
    nights.run("second run of the date", 12, hour=14)
    nights.clear("cleared assessment", "second run of the date", "night.shard.assess")
    assert nights.digest("changed verdict, no answer") == before
    nights.lose_shard("second run of the date")
    nights.clear("lost shard", "second run of the date", "night.shard.ingest")
    for day in (5, 6, 7):
        nights.run(f"backfill of day {day}", day)
    nights.write(good, good, "", "")
    nights.run("failed shard", 13)
    nights.write(good, good, f"{bad} At all.", f"{good} At least.")
    nights.clear("failed shard, repaired", "failed shard", "night.shard.ingest")
    nights.write(bad, good, f"{bad} At all.", f"{good} At least.")
    nights.service.fail("submit_assessment", status=422, times=None)
    nights.run("failed assessment", 14)


def main(folder: Path, store: str) -> None:
    path = folder / "dags" / "night.py"
    prepare(path.parent)
    from airflow_provider.cli import commands
    from airflow_provider.emulator import Emulator
    from tests.stores.s3_servers import Moto
    from tests.stores.stores import S3Store

    with ExitStack() as stack:
        service = stack.enter_context(Emulator())
        os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"] = service.connection_json
        base = f"file://{folder}/compliance"
        if store == "s3":
            server = Moto()
            server.start()
            stack.callback(server.stop)
            bucket = S3Store.make(server)
            for name, connection in bucket.connections.items():
                os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(connection)
            base = f"{bucket.base}compliance"
        write_dag(path, base, "shard_size=2, retries=0")
        nights = Nights(runpy.run_path(str(path))["dag"], base, service)
        run_situations(nights)
        nights.found["verify"] = commands.main(["verify", f"{base}/nights/"])
    (folder / "found.json").write_text(json.dumps(nights.found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
