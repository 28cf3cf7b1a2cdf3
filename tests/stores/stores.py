"""What a test knows of a store: where to write, and what others than fsspec find there."""

from __future__ import annotations

import re
import shutil
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests

from tests.stores.s3_servers import S3Server
from tests.stores.servers import Azurite, FakeGcs, Server


@dataclass
class Store(ABC):
    """One bucket, container or folder, empty at first."""

    kind: str
    base: str  # the URI to write under, with the Airflow connection in it; ends with a slash
    connections: dict[str, dict[str, Any]] = field(default_factory=dict)
    bases_of_faults: dict[str, str] = field(default_factory=dict)
    server: Server | None = None

    @abstractmethod
    def keys(self) -> set[str]:
        """Tell what is there, hidden and temporary files included."""

    @abstractmethod
    def read(self, key: str) -> bytes: ...

    @abstractmethod
    def put(self, key: str, content: bytes) -> None: ...

    @abstractmethod
    def unfinished(self) -> int:
        """Count the uploads that were begun and neither completed nor aborted."""

    @abstractmethod
    def clear(self) -> None:
        """Give the space back."""

    @property
    def missing(self) -> str:
        """Like `base`, in a bucket that does not exist."""
        return self._fault("missing")

    @property
    def read_only(self) -> str:
        """Like `base`, but nothing can be written."""
        return self._fault("read_only")

    @property
    def stranger(self) -> str:
        """Like `base`, with unknown credentials."""
        return self._fault("stranger")

    def stop(self) -> None:
        """Let the server go away."""
        self._server().stop()

    def start(self) -> None:
        """Let it come back, with the data it had."""
        self._server().start()

    def _server(self) -> Server:
        if self.server is None:
            pytest.skip(f"{self.kind} has no server")
        return self.server

    def _fault(self, name: str) -> str:
        if name not in self.bases_of_faults:
            pytest.skip(f"{self.kind} has no base that is {name}")
        return self.bases_of_faults[name]


@dataclass
class LocalStore(Store):
    """A folder. What can't be written is below a file, as permissions mean nothing to root."""

    root: Path = Path()
    temporary: Path = Path()

    @classmethod
    def make(cls, folder: Path) -> LocalStore:
        root, temporary, file = folder / "store", folder / "temporary", folder / "file"
        root.mkdir()
        temporary.mkdir()
        file.touch()
        faults = {"read_only": f"file://{file}/"}
        return cls("local", f"file://{root}/", bases_of_faults=faults, root=root, temporary=temporary)

    def keys(self) -> set[str]:
        return {path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()}

    def read(self, key: str) -> bytes:
        return (self.root / key).read_bytes()

    def put(self, key: str, content: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def unfinished(self) -> int:
        """Count what is in the folder for temporary files: fsspec writes there what is not yet committed."""
        return sum(path.is_file() for path in self.temporary.rglob("*"))

    def clear(self) -> None:
        shutil.rmtree(self.root)


@dataclass
class S3Store(Store):
    """A bucket; all servers here list the multipart uploads that wait."""

    bucket: str = ""
    client: Any = None

    @classmethod
    def make(cls, server: S3Server) -> S3Store:
        conn_id, bucket = f"store_{server.kind}", f"bucket-{uuid.uuid4().hex[:8]}"
        connections = {conn_id: _aws(server, server.writer)}
        faults = {"missing": f"s3://{conn_id}@no-{bucket}/"}
        if server.reader:
            connections[f"{conn_id}_read_only"] = _aws(server, server.reader)
            faults["read_only"] = f"s3://{conn_id}_read_only@{bucket}/"
        if server.checks_credentials:
            connections[f"{conn_id}_stranger"] = _aws(server, (server.writer[0], "wrong"))
            faults["stranger"] = f"s3://{conn_id}_stranger@{bucket}/"
        client = server.client()
        client.create_bucket(Bucket=bucket)
        base = f"s3://{conn_id}@{bucket}/"
        return cls(server.kind, base, connections, faults, server, bucket, client)

    def keys(self) -> set[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {found["Key"] for page in pages for found in page.get("Contents", [])}

    def read(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return content

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def unfinished(self) -> int:
        """Count what the server lists: after a restart rclone has forgotten it, the others have not."""
        try:
            return len(self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", []))
        except self.client.exceptions.NoSuchUpload:  # what rclone says of a bucket that never had one
            return 0

    def empty(self) -> None:
        """Remove all objects."""
        for key in self.keys():
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def clear(self) -> None:
        self.empty()
        self.client.close()


@dataclass
class AzureStore(Store):
    """A container. What may only be read is so by a shared access signature."""

    container: Any = None

    @classmethod
    def make(cls, server: Azurite) -> AzureStore:
        from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

        (account, key), name = server.account, f"container-{uuid.uuid4().hex[:8]}"
        container = ContainerClient(server.url, name, credential=key, retry_total=0)
        container.create_container()
        until = datetime.now(UTC) + timedelta(days=1)
        may_read = ContainerSasPermissions(read=True, list=True)
        signature = generate_container_sas(account, name, account_key=key, permission=may_read, expiry=until)
        secrets = {
            "store_azurite": f"AccountName={account};AccountKey={key}",
            "store_azurite_read_only": f"SharedAccessSignature={signature}",
            "store_azurite_stranger": f"AccountName={account};AccountKey=bm9ib2R5",
        }
        start = f"DefaultEndpointsProtocol=http;BlobEndpoint={server.url}"
        connections = {
            conn_id: {"conn_type": "wasb", "extra": {"connection_string": f"{start};{secret}"}}
            for conn_id, secret in secrets.items()
        }
        faults = {
            "missing": f"abfs://store_azurite@no-{name}/",
            "read_only": f"abfs://store_azurite_read_only@{name}/",
            "stranger": f"abfs://store_azurite_stranger@{name}/",
        }
        return cls("azurite", f"abfs://store_azurite@{name}/", connections, faults, server, container)

    def keys(self) -> set[str]:
        return {blob.name for blob in self.container.list_blobs()}

    def read(self, key: str) -> bytes:
        content: bytes = self.container.download_blob(key).readall()
        return content

    def put(self, key: str, content: bytes) -> None:
        self.container.upload_blob(key, content, overwrite=True)

    def unfinished(self) -> int:
        """Count names with blocks that wait; they can't be aborted, Azure forgets them after a week."""
        names = {blob.name for blob in self.container.list_blobs(include=["uncommittedblobs"])}
        blobs = [self.container.get_blob_client(name) for name in names]
        return sum(bool(blob.get_block_list("uncommitted")[1]) for blob in blobs)

    def clear(self) -> None:
        self.container.delete_container()
        self.container.close()


@dataclass
class GcsStore(Store):
    """A bucket, through the plain JSON API; the server asks for no credentials."""

    bucket: str = ""
    url: str = ""
    log: Path = Path()

    @classmethod
    def make(cls, server: FakeGcs) -> GcsStore:
        bucket = f"bucket-{uuid.uuid4().hex[:8]}"
        answer = requests.post(f"{server.url}/storage/v1/b?project=lab", json={"name": bucket}, timeout=60)
        answer.raise_for_status()
        extra = {"is_anonymous": True, "project": "lab", "gcs.endpoint": server.url}
        connections = {"store_gcs": {"conn_type": "google_cloud_platform", "extra": extra}}
        base, faults = f"gs://store_gcs@{bucket}/", {"missing": f"gs://store_gcs@no-{bucket}/"}
        return cls("gcs", base, connections, faults, server, bucket, server.url, server.log)

    def keys(self) -> set[str]:
        answer = self._ask("GET", "/storage/v1", params={"maxResults": "100000"}).json()
        return {found["name"] for found in answer.get("items", [])}

    def read(self, key: str) -> bytes:
        return self._ask("GET", "/download/storage/v1", f"/{quote(key, safe='')}?alt=media").content

    def put(self, key: str, content: bytes) -> None:
        parameters = {"uploadType": "media", "name": key}
        self._ask("POST", "/upload/storage/v1", params=parameters, data=content)

    def unfinished(self) -> int:
        """Count in the server's log, as it lists no uploads: begun, less completed, less cancelled (499)."""
        begun = ended = 0
        upload = (
            rf"(\w+) /upload/storage/v1/b/{self.bucket}/o\?(\S*uploadType=resumable\S*) HTTP/1.1\\\" (\d+)"
        )
        for method, query, status in re.findall(upload, self.log.read_text()):
            if "upload_id=" not in query:
                begun += status == "200"
            else:
                ended += status == ("499" if method == "DELETE" else "200")
        return begun - ended

    def clear(self) -> None:
        for key in self.keys():
            self._ask("DELETE", "/storage/v1", f"/{quote(key, safe='')}")

    def _ask(self, method: str, api: str, rest: str = "", **arguments: Any) -> requests.Response:
        address = f"{self.url}{api}/b/{self.bucket}/o{rest}"
        answer = requests.request(method, address, timeout=60, **arguments)
        answer.raise_for_status()
        return answer


def _aws(server: S3Server, credentials: tuple[str, str]) -> dict[str, Any]:
    extra = {"endpoint_url": server.url, "region_name": "us-east-1"}
    return {"conn_type": "aws", "login": credentials[0], "password": credentials[1], "extra": extra}
