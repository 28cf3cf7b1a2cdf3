"""Canaries: private APIs of libraries that this provider relies on, each with what breaks without it."""

from __future__ import annotations

import asyncio
import http.client
import inspect
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.runtime import compat
from airflow_provider.triggers.base import TRIGGER_HAS_ON_KILL


def test_aiohttp_sessions_have_a_switch_against_silent_retries() -> None:
    """Else aiohttp repeats requests on its own, submits included."""
    import aiohttp

    async def has_switch() -> bool:
        async with aiohttp.ClientSession() as session:
            return session._retry_connection is True

    assert asyncio.run(has_switch())


def test_aiohttp_connectors_have_the_methods_that_start_the_clock_of_a_request() -> None:
    """Else a stalled request would never time out."""
    from aiohttp import BaseConnector, TCPConnector

    for method in (BaseConnector.connect, BaseConnector._create_connection, TCPConnector._create_connection):
        assert inspect.iscoroutinefunction(method)
        assert list(inspect.signature(method).parameters) == ["self", "req", "traces", "timeout"]


def test_fsspec_has_coroutines_with_an_underscore() -> None:
    """Journal and small files are written and read with them on the event loop of the store's library."""
    from fsspec.asyn import AsyncFileSystem

    assert inspect.iscoroutinefunction(AsyncFileSystem._pipe_file)
    assert inspect.iscoroutinefunction(AsyncFileSystem._cat_file)
    assert isinstance(inspect.getattr_static(AsyncFileSystem, "loop"), property)


def test_fsspec_strips_protocols(tmp_path: Path) -> None:
    """Listings name paths without them."""
    from fsspec.implementations.local import LocalFileSystem

    assert LocalFileSystem._strip_protocol(f"file://{tmp_path}") == str(tmp_path)


def test_s3fs_lists_and_aborts_multipart_uploads() -> None:
    """Uploads that a killed process has left behind are removed with them."""
    S3FileSystem = pytest.importorskip("s3fs").S3FileSystem  # noqa: N806 - a class
    assert callable(S3FileSystem.call_s3)
    assert list(inspect.signature(S3FileSystem._abort_mpu).parameters)[:4] == ["self", "bucket", "key", "mpu"]
    assert callable(S3FileSystem.abort_mpu)


def test_http_client_reads_the_status_in_a_method_of_its_own() -> None:
    """Interim responses, such as 103, are skipped there."""
    response: Any = http.client.HTTPResponse
    assert list(inspect.signature(response._read_status).parameters) == ["self"]


def test_urllib3_keeps_the_response_of_the_standard_library() -> None:
    """The time limit of a response is set on it."""
    import urllib3

    response = urllib3.HTTPResponse(body=b"", original_response=None)
    assert hasattr(response, "_original_response")


@pytest.mark.skipif(not TRIGGER_HAS_ON_KILL, reason="Airflow before 3.3 has no asset state store")
def test_airflow_keeps_asset_state_stores_by_name_and_uri() -> None:
    """The framework watcher keeps its state with every asset that it watches."""
    from airflow.sdk.execution_time import context

    source = inspect.getsource(context)
    assert "_by_name" in source
    assert "_by_uri" in source


def test_airflow_tells_the_state_of_a_task() -> None:
    """A killed trigger cancels jobs only if its task has ended, and a killed task if it was not cleared."""
    if compat.ON_KILL_ENDS_TASK:  # Airflow 2
        from airflow.models import TaskInstance

        assert "session" in inspect.signature(TaskInstance.current_state).parameters
        return
    runner = pytest.importorskip("airflow.sdk.execution_time.task_runner")
    method = runner.RuntimeTaskInstance.get_task_states
    assert {"dag_id", "task_ids", "run_ids", "map_index"} <= set(inspect.signature(method).parameters)


def test_human_in_the_loop_can_be_executed_from_a_resumed_task() -> None:
    """A review asks again after an earlier answer; Airflow lets only `execute` call `execute`."""
    operator = compat.human_in_the_loop()
    if operator.__module__ == compat.__name__:
        pytest.skip("this Airflow has no human in the loop")
    plain = inspect.unwrap(operator.execute)
    assert list(inspect.signature(plain).parameters) == ["self", "context"]


def test_airflow_has_a_message_that_names_a_mapped_task() -> None:
    """A review that waits has the name of its document; Airflow itself sends a name only at the end."""
    comms = pytest.importorskip("airflow.sdk.execution_time.comms", reason="Airflow 2 has a database")
    runner = pytest.importorskip("airflow.sdk.execution_time.task_runner")
    if not hasattr(comms, "SetRenderedMapIndex"):
        assert not TRIGGER_HAS_ON_KILL, "only Airflow before 3.2 has none"
        pytest.skip("Airflow before 3.2 has none")
    assert "rendered_map_index" in comms.SetRenderedMapIndex.model_fields
    assert "SUPERVISOR_COMMS" in runner.__annotations__
