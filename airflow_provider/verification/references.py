"""References of records and rows to objects: where those are now, and which of them were verified before."""

from __future__ import annotations

import hashlib
import os.path
import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import to_bytes
from airflow_provider.verification.objects import ProblemError, ProblemKind

_SHA256 = re.compile("[0-9a-f]{64}")
_MAX_SHOWN_CHARS = 200


@dataclass(frozen=True)
class Reference:
    """An object as a record or a row names it."""

    location: Location
    sha256: str

    @property
    def key(self) -> bytes:
        """Identifies it: the same object with another hash is another reference."""
        return hashlib.sha256(to_bytes(f"{self.location.uri}\n{self.sha256}")).digest()


class Resolver:
    """Finds objects below the root that is verified, which may have been moved or copied.

    Nothing else is read: records are not trusted, and could name any file or host.

    :param also: other places that may be read
    :param recorded_roots: where the root was when the records of the chain were written
    """

    def __init__(
        self, root: Location, also: Sequence[Location] = (), recorded_roots: Iterable[str] = ()
    ) -> None:
        self._root = root
        self._allowed = [root, *also]
        places = {_address(place.uri): place for place in self._allowed}
        for uri in recorded_roots:
            try:
                places.setdefault(_address(uri), root)
            except ComplianceInputError:
                continue  # it is not a location
        # The longest first: the root may have been moved into or out of a folder.
        self._places = sorted(places.items(), key=lambda place: -len(place[0]))

    def resolve(self, path: object, sha256: object) -> Reference:
        """Return a reference to an object; ProblemError if it is invalid, or the object may not be read.

        :param path: below the root, or a URI
        """
        is_named = isinstance(path, str) and path and isinstance(sha256, str)
        if not is_named or not _SHA256.fullmatch(str(sha256)):
            raise ProblemError(
                ProblemKind.INVALID,
                f"{_shown(path)} with SHA-256 {_shown(sha256)} does not name an object and its hash",
            )
        return Reference(self.locate(str(path)), str(sha256))

    def locate(self, path: str) -> Location:
        """Return where an object is; ProblemError if it is nowhere that may be read."""
        is_relative = "://" not in path and not path.startswith(("/", "~"))
        candidates = [(path, self._root)] if is_relative else self._candidates(path)
        for inner, place in candidates:
            if ".." not in inner.split("/"):
                location = place / inner
                if location.is_local and not self._is_inside(Path(location.path)):
                    break  # a link
                return location
        raise ProblemError(ProblemKind.OUTSIDE, f"{_shown(path)} is not below the root, so it was not read")

    def _candidates(self, uri: str) -> list[tuple[str, Location]]:
        try:
            found = _address(uri)
        except ComplianceInputError as error:
            raise ProblemError(ProblemKind.INVALID, str(error)) from None
        return [
            (found.removeprefix(f"{prefix}/"), place)
            for prefix, place in self._places
            if found.startswith(f"{prefix}/")
        ]

    def _is_inside(self, path: Path) -> bool:
        """Return whether a file is below the root or another place, where links lead to."""
        try:
            real = Path(os.path.realpath(path))  # unlike `resolve`, it accepts a loop of links
        except ValueError:  # such as a null byte: it can't exist
            return True
        return any(
            real.is_relative_to(os.path.realpath(place.path)) for place in self._allowed if place.is_local
        )


def _address(uri: str) -> str:
    return Location(uri).address.rstrip("/")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f"'{text[:_MAX_SHOWN_CHARS]}'"


class VerifiedReferences:
    """Which references were verified before, on disk: there may be millions.

    Each is verified where it appears first, that is with the night that has written the object; a later night
    that has skipped or carried forward the document refers to the same object.

    :param path: of a temporary file
    """

    def __init__(self, path: Path) -> None:
        self._rows = sqlite3.connect(path, isolation_level=None)
        self._rows.execute("PRAGMA journal_mode = OFF")
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute(
            "CREATE TABLE verified (key BLOB PRIMARY KEY, problem TEXT DEFAULT '') WITHOUT ROWID"
        )
        self._rows.execute("BEGIN")

    def add(self, key: bytes) -> bool:
        """Remember a reference; return whether it is new."""
        return self._rows.execute("INSERT OR IGNORE INTO verified (key) VALUES (?)", (key,)).rowcount == 1

    def set_problem(self, key: bytes, kind: ProblemKind, record: int) -> None:
        """Remember that an object has a problem, and with which record that was found."""
        self._rows.execute("UPDATE verified SET problem = ? WHERE key = ?", (f"{kind} {record}", key))

    def find(self, key: bytes) -> tuple[str, int] | None:
        """Return what was found before: a kind of problem and a record, or nothing and 0; None if unknown."""
        row = self._rows.execute("SELECT problem FROM verified WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        kind, _, record = row[0].partition(" ")
        return kind, int(record or 0)

    def close(self) -> None:
        """Close the file."""
        self._rows.close()
