"""DAGs that the tests run; what is processed comes with the run."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.sensors.content import ComplianceContentSensor

SOON: dict[str, Any] = {"poll_interval": 2, "retry_delay": timedelta(seconds=1)}
URL = "{{ dag_run.conf['url'] }}"


@task
def listed(name: str, **context: Any) -> list[str]:
    """Read a list from the run's configuration."""
    values: list[str] = context["dag_run"].conf[name]
    return values


class DiesBeforeItDefers(ComplianceSubmitUrlOperator):
    """Its first attempt gets no further than the submit."""

    def defer(self, **kwargs: Any) -> Any:
        """Die as if the machine had lost its power."""
        if self._attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().defer(**kwargs)

    def execute(self, context: Any) -> str:
        """Remember which attempt this is."""
        self._attempt = context["ti"].try_number
        return super().execute(context)


with DAG("submit_one"):
    ComplianceSubmitUrlOperator(
        task_id="submit", url=URL, wait_for_completion=True, deferrable=True, retries=0, **SOON
    )

with DAG("submit_many"):
    ComplianceSubmitUrlOperator.partial(
        task_id="submit", wait_for_completion=True, deferrable=True, retries=2, **SOON
    ).expand(url=listed("urls"))

with DAG("submit_in_worker"):
    ComplianceSubmitUrlOperator(task_id="submit", url=URL, wait_for_completion=True, retries=1, **SOON)

with DAG("submit_with_state"):
    ComplianceSubmitUrlOperator(
        task_id="submit", url=URL, conn_id="compliance_state", wait_for_completion=True, retries=1, **SOON
    )

with DAG("submit_and_die"):
    DiesBeforeItDefers(
        task_id="submit", url=URL, wait_for_completion=True, deferrable=True, retries=1, **SOON
    )

with DAG("sense_many"):
    uuids = "{{ dag_run.conf['uuids'] }}"
    ComplianceContentSensor(task_id="together", uuid=uuids, deferrable=True, **SOON)
    ComplianceContentSensor.partial(task_id="each", deferrable=True, **SOON).expand(uuid=listed("uuids"))

with DAG("sense_one"):
    ComplianceContentSensor(task_id="sense", uuid="{{ dag_run.conf['uuid'] }}", deferrable=True, **SOON)
