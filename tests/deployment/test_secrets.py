"""What must be found nowhere."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.deployment.conftest import Service
from tests.deployment.system import Deployment

pytestmark = pytest.mark.deployment


def test_no_secret_is_in_a_log_or_in_the_database(deployment: Deployment, service: Service) -> None:
    run = deployment.trigger("submit_one", url=f"{service.url}/?page")
    run.wait_for("deferred")
    deployment.wait_for(lambda: service.count("get_statuses") >= 1, "a first look")
    service.expire_tokens()  # a refused token must not be told of either
    deployment.wait_for(lambda: service.counters()["refreshes"] >= 1, "a new token")
    service.finish_jobs()
    run.wait_for("success")

    assert len(service.secrets) >= 6
    texts = {str(path): path.read_bytes() for path in deployment.home.rglob("*") if path.is_file()}
    with closing(sqlite3.connect(deployment.home / "airflow.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            texts[table] = repr(database.execute(f'SELECT * FROM "{table}"').fetchall()).encode()
    assert len(texts) > len(tables) > 20
    found = [place for place, text in texts.items() if any(each.encode() in text for each in service.secrets)]
    assert not found
