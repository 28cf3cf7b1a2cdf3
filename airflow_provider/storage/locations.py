"""Where something is, or is to be, in object storage."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.hooks.objects import object_path
from airflow_provider.storage.failing import storage_errors


class Location:
    """An address in a store that Airflow knows, such as `s3://conn_id@bucket/key` or a local path.

    Parts are joined as text: unlike paths, keys have no `..` and no double slashes to be clever about.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        scheme, separator, rest = uri.partition("://")
        self.protocol = scheme.lower() if separator else "file"
        if not separator:
            rest = uri
        authority, slash, path = rest.partition("/")
        conn_id, at, bucket = authority.rpartition("@")
        self.conn_id = conn_id if at else None
        self.container = bucket
        self.key = path
        self._bare = f"{bucket}{slash}{path}"
        if not self._bare.strip("/") or (self.protocol != "file" and not bucket):
            raise ComplianceInputError(f"'{uri}' is no place in a store: write s3://conn_id@bucket/prefix/.")

    @property
    def is_prefix(self) -> bool:
        """Whether more has to be added to have the address of an object."""
        return self._bare.endswith("/") or (self.protocol != "file" and not self.key)

    @property
    def address(self) -> str:
        """The address without the Airflow connection: what it is called in lineage."""
        return f"{self.protocol}://{self._bare}"

    @property
    def path(self) -> str:
        """What the file system calls it."""
        return self._bare

    @cached_property
    def fs(self) -> Any:
        """The file system; it asks Airflow for the connection, so use it in the task's own thread first."""
        return object_path(self.uri).fs

    def size(self) -> int | None:
        """Return how large the object is, or None where there is none."""
        with storage_errors(self, "looked at"):
            try:
                info = self.fs.info(self.path)
            except FileNotFoundError:
                return None
        return int(info["size"]) if info["type"] == "file" else None

    def __truediv__(self, name: str) -> Location:
        inner = Location(self.uri.rstrip("/") + "/" + name)
        inner.fs = self.fs
        return inner

    def __str__(self) -> str:
        return self.uri
