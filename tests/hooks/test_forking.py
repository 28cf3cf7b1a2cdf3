"""A used hook in other processes: forked with it, or pickled to them."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider.hooks.compliance import ComplianceHook
from tests.client.test_forking import COUNT, answer_each, ask_each
from tests.hooks.test_compliance_hook import connection
from tests.support.forking import may_fork
from tests.support.service import Reply, Service
from tests.support.values import CLIENT_SECRET, PASSWORD

pytestmark = may_fork


class OwnHook(ComplianceHook):
    """A hook with a value of its own."""

    prefix = ""

    def translate_assessment(self, record: dict[str, Any]) -> dict[str, Any]:
        return {"id": 1, "status": "FAILED", "error": f"{self.prefix}{record['why']}"}


@pytest.fixture
def hook(service: Service, monkeypatch: pytest.MonkeyPatch) -> ComplianceHook:
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection(service.url)))
    service.on("GET /api/v1/frameworks", Reply(json=[]))
    service.on("GET /api/v1/assessments/1/status", Reply(json={"why": "why"}))
    return OwnHook()


def use(hook: ComplianceHook) -> None:
    assert hook.list_frameworks() == []
    hook.log.info("used")


def test_a_pool_of_processes_may_use_a_hook(hook: ComplianceHook, service: Service) -> None:
    answer_each(service, "parent", "pool")
    use(hook)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        jobs = pool.map_async(hook.get_status, [f"pool-{number}" for number in range(COUNT)], chunksize=2)
        assert ask_each(hook.get_status, "parent") == []
        assert [job.error for job in jobs.get(240)] == [f"of pool-{number}" for number in range(COUNT)]


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda hook: pickle.loads(pickle.dumps(hook)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_used_hook_can_be_copied(hook: OwnHook, service: Service, way: str) -> None:
    hook.prefix = "own-"
    use(hook)
    twin = WAYS[way](hook)
    use(twin)
    use(hook)
    assert type(twin) is OwnHook
    assert twin.conn_id == hook.conn_id
    assert twin.get_conn() is not hook.get_conn()
    assert twin.get_assessment(1).error == "own-why"
    assert service.grants() == ["password"]


def test_a_pickled_hook_holds_no_more_than_an_unused_one(hook: ComplianceHook) -> None:
    hook.log.info("begin")
    before = pickle.dumps(hook)
    use(hook)
    after = pickle.dumps(hook)
    assert after == before
    for secret in (PASSWORD, CLIENT_SECRET, "access-1", "refresh-1"):
        assert secret.encode() not in after
