"""What must be found nowhere, after all that the other tests have done to the deployment."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.deployment.servers import dump
from tests.deployment.system import Deployment
from tests.e2e.conftest import CANARY
from tests.e2e.stage import Stage

pytestmark = pytest.mark.distributed

DATABASE = "all tables"


@pytest.fixture
def texts(deployment: Deployment, stage: Stage, tmp_path: Path) -> dict[str, bytes]:
    """All logs, the whole database, and all that lies in the store."""
    page = next(iter(stage.pages))
    stage.service.configure(jobs="instant")
    run = deployment.trigger("submit_many", urls=[f"{page}?{CANARY}"])
    assert run.wait_for_end()["state"] == "success"
    found = {}
    for path in deployment.home.rglob("*"):
        with suppress(OSError):  # a folder, or gone already
            found[str(path.relative_to(deployment.home))] = path.read_bytes()
    dump(deployment.database_url, tmp_path / "dump.sql")
    found[DATABASE] = (tmp_path / "dump.sql").read_bytes()
    return found | {key: stage.read(key) for key in stage.keys("")}


def places_of(needles: Iterable[str], texts: dict[str, bytes]) -> list[str]:
    wanted = [needle.encode() for needle in needles]
    return [place for place, text in texts.items() if any(needle in text for needle in wanted)]


def test_no_secret_is_in_a_log_in_the_database_or_in_the_store(texts: dict[str, bytes], stage: Stage) -> None:
    # The search can find something: an address that is not a secret is in logs and tables.
    told = places_of([CANARY], texts)
    assert DATABASE in told
    assert any(place.startswith("logs/dag_id=submit_many/") for place in told)

    assert len(stage.service.secrets) >= 6  # password, client secret, and two of each login and renewal
    assert places_of(stage.secrets, texts) == []
