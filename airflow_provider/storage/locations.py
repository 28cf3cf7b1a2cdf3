"""Where something is, or is to be, in object storage."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.hooks.objects import file_system
from airflow_provider.storage.errors import storage_errors
from airflow_provider.storage.names import printable


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
        if not self._bare.replace("/", "").strip() or (self.protocol != "file" and not bucket.strip()):
            raise ComplianceInputError(f"'{self}' is no place in a store: write s3://conn_id@bucket/prefix/.")
        if self.protocol in ("file", "local") and self._bare.startswith("~/"):
            self._bare = str(Path.home()) + self._bare[1:]  # as fsspec has it, so that both mean one place

    @classmethod
    def to_write(cls, uri: Any) -> Location:
        """Take the address of a destination, which goes into XComs and lineage."""
        location = cls(str(uri))
        if location.uri != printable(location.uri):
            raise ComplianceInputError(f"The destination '{location}' is not UTF-8: choose another one.")
        return location

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
        return file_system(self.protocol, self.conn_id, str(self))

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
        return printable(self.uri)
