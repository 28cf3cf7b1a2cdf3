"""The policy in docs/bucket.md is enough for a night, and not for more."""

from __future__ import annotations

import json
import re
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import settings
from moto.server import ThreadedMotoServer

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.night import ComplianceCloseNightOperator
from tests.support.attempts import Attempts

PAGE = (Path(__file__).parents[2] / "docs" / "bucket.md").read_text()
NIGHT = "s3://my_aws@compliance/nights/run=1/"


@pytest.mark.once
def test_the_documented_policy_is_enough_for_a_night(
    compliance_service: Emulator, attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        place = {
            "endpoint_url": "http://{}:{}".format(*server.get_host_and_port()),
            "region_name": "us-east-1",
        }
        root = boto3.Session("root", "root")
        store, users = root.client("s3", **place), root.client("iam", **place)
        store.create_bucket(Bucket="compliance")
        (sample,) = write_samples(tmp_path, pdfs=1, docx=0, pages=0)
        store.upload_file(str(sample.path), "compliance", "documents/a.pdf")
        users.create_user(UserName="worker")
        (policy,) = re.findall(r"^```json\n(\{\n  \"Version\".*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        users.put_user_policy(UserName="worker", PolicyName="night", PolicyDocument=policy)
        key = users.create_access_key(UserName="worker")["AccessKey"]
        login = key["AccessKeyId"], key["SecretAccessKey"]
        connection = {"conn_type": "aws", "login": login[0], "password": login[1], "extra": place}
        monkeypatch.setenv("AIRFLOW_CONN_MY_AWS", json.dumps(connection))
        monkeypatch.setattr("moto.core.responses.ActionAuthenticatorMixin.request_count", 0)
        monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0.0)  # from here on, policies count

        documents = "s3://my_aws@compliance/documents/"
        ingested = attempts.run(
            ComplianceIngestOperator(task_id="ingest", sources=documents, destination=NIGHT)
        )
        assessed = attempts.run(
            ComplianceAssessOperator(task_id="assess", documents=ingested, destination=NIGHT)
        )
        outputs = {"ingested": ingested, "assessed": assessed, "destination": NIGHT}
        closed = attempts.run(ComplianceCloseNightOperator(task_id="close", **outputs))

        assert (closed["completed"], closed["assessments_failed"]) == (1, 0)
        with pytest.raises(ClientError, match="AccessDenied"):
            boto3.Session(*login).client("s3", **place).delete_object(
                Bucket="compliance", Key="documents/a.pdf"
            )
    finally:
        server.stop()
