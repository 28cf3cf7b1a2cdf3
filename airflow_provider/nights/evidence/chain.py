"""The chain of nights below a root: each record names the SHA-256 of the previous one.

References to other objects are paths below the root, so the whole tree can be moved.

Records are only ever added. Their names are consecutive numbers, and a store creates each name once, so two
tasks that close a night at the same time get two numbers, never a fork.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.storage.atomic import create_once
from airflow_provider.storage.locations import Location, parse_json
from airflow_provider.storage.names import EVIDENCE_FOLDER as EVIDENCE_FOLDER

log = logging.getLogger(__name__)

NIGHTS = "nights"
CARRIED = ("erasing", "holds")  # repeated from the previous record: see `erasure` and `holds`
MAX_TRIES = 100  # to get a number; a failure means that another task got it
_NAME = re.compile(r"([0-9]{8})\.json")


class DamagedRecordError(ComplianceStorageError):
    """A record of the chain is gone or was changed; no retry helps."""

    transient = False


@dataclass(frozen=True)
class ChainRecord:
    """A record of the chain.

    :param sha256: the SHA-256 of the object, byte by byte
    """

    number: int
    uri: str
    sha256: str
    record: Mapping[str, Any]

    @property
    def reference(self) -> dict[str, Any]:
        """How other records refer to it."""
        return {"number": self.number, "sha256": self.sha256}


class Chain:
    """The nights below a root."""

    def __init__(self, root: Location) -> None:
        self.root = root
        self.folder = root / EVIDENCE_FOLDER / NIGHTS

    def numbers(self) -> list[int]:
        """Return the numbers of all records that the store lists, in order."""
        found = (_NAME.fullmatch(name) for name in self.folder.list_names())
        return [int(name[1]) for name in found if name]

    def location(self, number: int) -> Location:
        """Return where a record is."""
        return self.folder / f"{number:08}.json"

    def read(self, number: int) -> ChainRecord:
        """Read a record."""
        location = self.location(number)
        data = location.read()
        record = None if data is None else parse_json(data)
        if data is None or not isinstance(record, dict) or not isinstance(record.get("revision", 1), int):
            problem = "does not exist" if data is None else "is damaged: it is not a record of a night"
            raise DamagedRecordError(
                f"The record '{location}' {problem}. Restore it from a backup or an earlier version."
            )
        return ChainRecord(number, location.uri, hashlib.sha256(data).hexdigest(), record)

    def find_head(self) -> ChainRecord | None:
        """Read the newest record, even if the store does not list it yet."""
        number = max(self.numbers(), default=0)
        while self._exists(number + 1):
            number += 1
        return self.read(number) if number else None

    def _exists(self, number: int) -> bool:
        self.folder.fs.invalidate_cache()  # else some libraries answer from the last listing
        return self.location(number).size() is not None

    def newest_first(self, head: ChainRecord | None) -> Iterator[ChainRecord]:
        """Read the records one by one, the head first; one that is damaged is left to the verification."""
        if head is None:
            return
        yield head
        for number in range(head.number - 1, 0, -1):
            try:
                yield self.read(number)
            except DamagedRecordError as error:
                log.warning("%s It is ignored here, but no verification of the chain will pass.", error)

    def append(
        self, make_record: Callable[[ChainRecord | None], Mapping[str, Any] | ChainRecord]
    ) -> ChainRecord:
        """Add a record; return it.

        :param make_record: gets the head, and returns what comes after it, or an earlier record if nothing is
            to be added; called again if another task added a record in the meantime
        """
        head = self.find_head()
        for _ in range(MAX_TRIES):
            record = make_record(head)
            if isinstance(record, ChainRecord):
                return record
            number = head.number + 1 if head else 1
            fixed = {"number": number, "previous": head.reference if head else None}
            before = head.record if head else {}
            carried = {name: before.get(name) for name in CARRIED}
            carried["latest"] = max(str(before.get("latest") or ""), str(record.get("night") or ""))
            data = json.dumps({**fixed, **carried, **record}, indent=1).encode()
            create_once(self.location(number), data)
            # Not by a listing, which may be late; and a store that ignores conditions may have taken another.
            head = self.read(number)
            if head.sha256 == hashlib.sha256(data).hexdigest():
                return head
        raise ComplianceStorageError(
            f"No record could be added to '{self.folder}': lost the write race {MAX_TRIES} times. Retry."
        )
