"""The same work of stock parts and of ours; what is processed comes with the run.

The stock side is what people write who know Airflow: a mapped group of tasks, so that no document waits for
another one, and no more requests than it takes.
"""

from __future__ import annotations

import json
from typing import Any

import requests
from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.http.sensors.http import HttpSensor
from airflow.sdk import DAG, BaseHook, ObjectStoragePath, task, task_group

from airflow_provider.operators.ingest import ComplianceIngestOperator

CONTENT = "/api/v1/content-processing"
SUBMITTED = "{{ ti.xcom_pull(task_ids='document.submit', map_indexes=ti.map_index) }}"
# Tokens of the service live 5 minutes, so a token that an earlier task got may be too old: each task logs in.
BEARER = {"Authorization": "Bearer {{ log_in() }}"}


def log_in() -> str:
    """Get a token; the stock HTTP connection knows nothing of OAuth, but has room for what it takes."""
    conn = BaseHook.get_connection("http_default")
    extra = json.loads(conn.password or "")
    answer = requests.post(extra["token_url"], data=extra["form"], timeout=30)
    answer.raise_for_status()
    return str(answer.json()["access_token"])


with DAG("stock", user_defined_macros={"log_in": log_in}):

    @task
    def bodies(**context: Any) -> list[str]:
        """Make the body of each submit."""
        return [json.dumps({"url": url}) for url in context["dag_run"].conf["urls"]]

    @task_group
    def document(body: str) -> None:
        """Process one document."""
        submit = HttpOperator(
            task_id="submit",
            endpoint=f"{CONTENT}/url",
            data=body,
            headers={"Content-Type": "application/json", **BEARER},
            response_filter=lambda response: response.json()["uuid"],
        )
        wait = HttpSensor(
            task_id="wait",
            endpoint=f"{CONTENT}/{SUBMITTED}/status",
            headers=BEARER,
            extra_options={"allow_redirects": False},
            response_check=lambda response: response.status_code == 303,
            poke_interval=1,
        )

        @task
        def fetch(uuid: str, **context: Any) -> str:
            """Write the text."""
            host = BaseHook.get_connection("http_default").host
            bearer = {"Authorization": f"Bearer {log_in()}"}
            answer = requests.get(f"{host}{CONTENT}/{uuid}/content", headers=bearer, timeout=30)
            answer.raise_for_status()
            target = ObjectStoragePath(context["dag_run"].conf["folder"]) / f"{uuid}.txt"
            target.write_bytes(answer.content)
            return str(target)

        written = fetch(SUBMITTED)
        submit >> wait >> written

    document.expand(body=bodies())

with DAG("ours"):
    ComplianceIngestOperator(
        task_id="ingest",
        sources="{{ dag_run.conf['urls'] }}",
        destination="{{ dag_run.conf['folder'] }}",
    )
