"""Settings of a deployment that is quick to notice things, and on loopback only."""

from __future__ import annotations

import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

SLOTS = 8  # tasks at a time of a Celery worker
# For files that do not change: parsing all of them every 30 s takes a large part of two cores.
PARSED_ONCE = {"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600"}


def environment_of(home: Path, url: str, workers: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of all processes of a deployment.

    :param workers: how many Celery workers there are; none is LocalExecutor
    :param settings: more, which win
    """
    ours = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__EXPOSE_STACKTRACE": "True",  # an error 500 says what it is
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__FERNET_KEY": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",  # more of them lock each other out of SQLite
        "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "64",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        # With the default of 5 s, components end on a busy machine because the database is locked.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db?timeout=60",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.4",
        # A triggerer that was killed is given up soon.
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        # With the default of 5 s, the first tasks fail on a busy machine: the API server is slow at first.
        # But now and then it never answers, and the request has to be repeated while the test still waits.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        # With the default of 5, LocalExecutor loses tasks that defer quickly.
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "NO_PROXY": "*",
    }
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AIRFLOW") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**inherited, **ours, **(_celery(workers) if workers else {}), **settings}


def _celery(workers: int) -> dict[str, str]:
    return {
        "AIRFLOW__CELERY__WORKER_CONCURRENCY": str(SLOTS),
        "AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT": "86400",
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        # No task is queued that no worker has room for, so one that is queued for long is lost.
        "AIRFLOW__CORE__PARALLELISM": str(SLOTS * workers),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_MAX_OVERFLOW": "40",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_SIZE": "20",
        # A worker that was killed is given up soon, with what it ran; a task sends a heartbeat every second.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        # Not too soon, because the first tasks on a busy machine need most of a minute to start.
        "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "120",
        "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "2",
    }
