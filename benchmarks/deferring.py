"""Put deferred task instances into Airflow's database; their triggers come as JSON on standard input.

Runs with the settings of the deployment. What a scheduler, an executor and a worker would have written down
after minutes is written down at once; the triggerer can't tell the difference.
"""

from __future__ import annotations

import json
import sys

from airflow.models.dagbag import DBDagBag
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
from sqlalchemy import func, select

DAG, TASK = "waiting", "wait"


def main() -> None:
    """Add one instance per trigger to the latest run."""
    with create_session() as session:
        dag = DBDagBag().get_latest_version_of_dag(DAG, session=session)
        assert dag
        of_task = TaskInstance.dag_id == DAG
        template = session.scalars(select(TaskInstance).where(of_task).limit(1)).one()
        last = session.scalar(select(func.max(TaskInstance.map_index)).where(of_task)) or 0
        for number, (path, kwargs) in enumerate(json.load(sys.stdin), last + 1):
            instance = TaskInstance(
                dag.get_task(TASK), template.dag_version_id, template.run_id, "deferred", number
            )
            instance.trigger = Trigger(path, kwargs)
            session.add(instance)


if __name__ == "__main__":
    main()
