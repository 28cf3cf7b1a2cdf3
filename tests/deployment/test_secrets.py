"""What must be found nowhere."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress

import pytest

from tests.deployment.conftest import Service
from tests.deployment.system import Deployment
from tests.stores.s3_servers import S3Server
from tests.stores.stores import S3Store

pytestmark = pytest.mark.deployment


def test_no_secret_is_in_a_log_or_in_the_database(deployment: Deployment, service: Service) -> None:
    run = deployment.trigger("submit_one", url=f"{service.url}/?page")
    run.wait_for("deferred")
    # A triggerer that comes with a token from before the test is refused at first, and has none to refresh.
    deployment.wait_for(lambda: service.count("get_statuses", 200) >= 1, "a first look")
    service.expire_tokens()  # a refused token must not be told of either
    deployment.wait_for(lambda: service.counters()["refreshes"] >= 1, "a new token")
    service.finish_jobs()
    run.wait_for("success")

    assert len(service.secrets) >= 6
    assert not places_of(service.secrets, deployment)


def test_a_transfer_tells_no_secret(deployment: Deployment, service: Service, bucket: S3Store) -> None:
    uuid = service.add_job(text="x", status="COMPLETED")
    service.fail("get_content", status=401)
    run = deployment.trigger("store_one", uuid=uuid, destination=f"{bucket.base}x.txt")
    run.wait_for("success", "store")

    assert service.counters()["logins"] + service.counters()["refreshes"] >= 2
    assert not places_of({*service.secrets, S3Server.writer[1]}, deployment)


def places_of(secrets: set[str], deployment: Deployment) -> list[str]:
    """Find the files and tables that have a secret in them."""
    texts = {}
    for path in deployment.home.rglob("*"):
        with suppress(OSError):  # a folder, or gone already
            texts[str(path)] = path.read_bytes()
    with closing(sqlite3.connect(deployment.home / "airflow.db", timeout=240)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            texts[table] = repr(database.execute(f'SELECT * FROM "{table}"').fetchall()).encode()
    assert len(texts) > len(tables) > 20
    return [place for place, text in texts.items() if any(each.encode() in text for each in secrets)]
