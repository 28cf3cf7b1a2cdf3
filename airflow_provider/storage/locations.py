"""Locations in object storage."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.hooks.interop import object_path
from airflow_provider.storage.errors import storage_errors
from airflow_provider.storage.names import printable


class Location:
    """A URI in a store that Airflow supports, such as `s3://conn_id@bucket/key`, or a local path.

    Parts are joined as text: in object keys, unlike paths, `..` and `//` have no meaning.
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
            raise ComplianceInputError(f"'{self}' is not a valid location: use s3://conn_id@bucket/prefix/.")
        if self.protocol in ("file", "local") and self._bare.startswith("~/"):
            self._bare = str(Path.home()) + self._bare[1:]  # as fsspec does

    @classmethod
    def to_write(cls, uri: Any) -> Location:
        """Parse the URI of a destination, which is written to XComs and lineage."""
        location = cls(str(uri))
        if location.uri != printable(location.uri):
            raise ComplianceInputError(
                f"The destination '{location}' is not valid UTF-8: choose another one."
            )
        return location

    @property
    def is_prefix(self) -> bool:
        """Whether this is a prefix of objects, not an object."""
        return self._bare.endswith("/") or (self.protocol != "file" and not self.key)

    @property
    def address(self) -> str:
        """The URI without the Airflow connection, as in lineage."""
        return f"{self.protocol}://{self._bare}"

    @property
    def path(self) -> str:
        """The path in the file system."""
        return self._bare

    @cached_property
    def fs(self) -> Any:
        """The file system; it gets the Airflow connection, so use it in the task's own thread first."""
        # Not by the whole URI: ObjectStoragePath does not take every character of a key.
        connection = f"{self.conn_id}@" if self.conn_id else ""
        return object_path(f"{self.protocol}://{connection}any/", name=str(self)).fs

    def size(self) -> int | None:
        """Return the size of the object, or None if it does not exist."""
        with storage_errors(self, "checked"):
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
