"""What a deployment works with: documents in a store, pages and a stand-in service, all on this machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.emulator.samples import Sample, serve_pages, write_samples
from tests.deployment.conftest import RecordingEmulator
from tests.deployment.system import Deployment
from tests.stores.s3_servers import Rclone, S3Server

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "example_dags"
DAGS = Path(__file__).parent / "dags"
DOCUMENTS, TEXTS = "documents", "compliance-texts"  # buckets
CONNECTION = "my_aws"  # and their connection
BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


@dataclass
class Stage:
    """All that is there beside Airflow.

    :param web: address of the web pages
    :param texts_at: where a browser finds the texts of the nightly job
    :param nightly: what the nightly job finds: the text of each source, None where it can't be read
    :param contracts: what is assessed
    :param pages: web pages by their addresses
    """

    service: RecordingEmulator
    server: Rclone
    web: str
    texts_at: str
    nightly: dict[str, str | None] = field(default_factory=dict)
    contracts: dict[str, str] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = self.server.client()

    @property
    def secrets(self) -> set[str]:
        """What must be found nowhere."""
        return {*self.service.secrets, S3Server.writer[1]}

    def settings(self) -> dict[str, str]:
        """Return the environment that leads Airflow here; the examples are as they are shipped."""
        store = {
            "conn_type": "aws",
            "login": S3Server.writer[0],
            "password": S3Server.writer[1],
            "extra": {"endpoint_url": self.server.url, "region_name": "us-east-1"},
        }
        folders = {"examples": EXAMPLES, "tests": DAGS}
        bundles = [
            {"name": name, "classpath": BUNDLE, "kwargs": {"path": str(folder)}}
            for name, folder in folders.items()
        ]
        documents, texts = (f"s3://{CONNECTION}@{bucket}" for bucket in (DOCUMENTS, TEXTS))
        return {
            # Not five minutes; but three attempts of an example are more than an outage of twenty seconds.
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "10",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__COMPLIANCE__REPORT_URLS": json.dumps({f"{texts}/nightly/": f"{self.texts_at}/"}),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(store),
            "COMPLIANCE_ASSESSED": f"{texts}/assessed/",
            "COMPLIANCE_CONTRACTS": f"{documents}/contracts/*.pdf",
            "COMPLIANCE_DESTINATION": f"{texts}/nightly/",
            "COMPLIANCE_DOCUMENTS": f"{documents}/inbox/",
            "COMPLIANCE_FILE": f"{documents}/contract.pdf",
            "COMPLIANCE_NIGHTS": f"{texts}/nights/",
            "COMPLIANCE_PAGES": f"{documents}/pages.txt",
            "COMPLIANCE_PAGE_TEXTS": f"{texts}/pages/",
            "COMPLIANCE_REASSESSED": f"{texts}/reassessed/",
            "COMPLIANCE_SOURCES": f"{documents}/inbox/ {documents}/pages.txt",
            "COMPLIANCE_TEXTS": f"{texts}/first/",
            "COMPLIANCE_WATCH_SECONDS": "1",
            "COMPLIANCE_WEB_PAGES": " ".join(self.pages),
        }

    def connect(self, deployment: Deployment) -> None:
        """Store the connection to the service in Airflow's database, in place of an older one."""
        connection = self.service.connection()
        extra = {**connection["extra"], "console_url": f"{self.service.url}/?job={{uuid}}"}
        entry = {**connection, "connection_id": "compliance_default", "extra": json.dumps(extra)}
        action = {"action": "create", "action_on_existence": "overwrite", "entities": [entry]}
        deployment.call("PATCH", "connections", {"actions": [action]})

    def put(self, prefix: str, samples: list[Sample]) -> dict[str, str | None]:
        """Store documents; return their URIs with their texts."""
        put = {}
        for each in samples:
            key = f"{prefix}{each.path.name}"
            self.client.put_object(Bucket=DOCUMENTS, Key=key, Body=each.path.read_bytes())
            put[f"s3://{CONNECTION}@{DOCUMENTS}/{key}"] = None if each.kind == "broken" else each.text
        return put

    def keys(self, prefix: str) -> set[str]:
        """Tell what is below a prefix where texts are."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=TEXTS, Prefix=prefix)
        return {found["Key"] for page in pages for found in page.get("Contents", [])}

    def unfinished(self) -> int:
        """Count the uploads that were begun and neither completed nor aborted."""
        try:
            return len(self.client.list_multipart_uploads(Bucket=TEXTS).get("Uploads", []))
        except self.client.exceptions.NoSuchUpload:  # what rclone says of a bucket that never had one
            return 0

    def read(self, uri: str) -> bytes:
        """Read an object by its URI or, where texts are, by its key; decompress a table."""
        content: bytes = self.client.get_object(Bucket=TEXTS, Key=key_of(uri))["Body"].read()
        return gzip.decompress(content) if uri.endswith(".gz") else content

    def rows(self, uri: str) -> list[dict[str, Any]]:
        """Read a manifest."""
        return [json.loads(line) for line in self.read(uri).splitlines()]


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Fill the store, serve the pages, and run the service until the end of the block."""
    server = Rclone()
    server.start()
    try:
        client = server.client()
        for bucket in (DOCUMENTS, TEXTS):
            client.create_bucket(Bucket=bucket)
        nightly = server.folder / "data" / TEXTS / "nightly"  # rclone's objects are plain files
        with (
            serve_pages(_made(folder / "web")) as web,
            serve_pages(_made(nightly)) as texts_at,
            RecordingEmulator(jobs="seconds:1") as service,
        ):
            yield _filled(Stage(service, server, web, texts_at), folder)
    finally:
        server.close()


def key_of(uri: str) -> str:
    """Return the key of an object where texts are."""
    return uri.removeprefix(f"s3://{CONNECTION}@{TEXTS}/")


def as_str_list(wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Return those that can be read."""
    return {source: text for source, text in wanted.items() if text is not None}


def _filled(stage: Stage, folder: Path) -> Stage:
    pages = write_samples(folder / "web", pdfs=0, docx=0, pages=24)
    stage.pages = {f"{stage.web}/{each.path.name}": each.text for each in pages[:3]}
    listed = {f"{stage.web}/{each.path.name}": each.text for each in pages[3:]}
    inbox = write_samples(folder / "inbox", pdfs=60, docx=40, pages=0, broken=3)
    stage.nightly = stage.put("inbox/", inbox) | listed | {f"{stage.web}/no-such-page.html": None}
    lines = [source for source in stage.nightly if source.startswith(stage.web)]
    stage.client.put_object(Bucket=DOCUMENTS, Key="pages.txt", Body="\n".join(lines).encode())
    contracts = write_samples(folder / "contracts", pdfs=3, docx=0, pages=0, seed=1)
    stage.contracts = as_str_list(stage.put("contracts/", contracts))
    stage.client.put_object(Bucket=DOCUMENTS, Key="contract.pdf", Body=contracts[0].path.read_bytes())
    return stage


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
