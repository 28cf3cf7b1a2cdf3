"""The tables of a night: JSON Lines, one CSV file per framework, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from airflow_provider.client.findings import parse_id, parse_number
from airflow_provider.nights.assess.findings import FINDING_COLUMNS
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import MAX_LINE_BYTES, TableFile
from airflow_provider.storage.locations import Location

# Spreadsheets skip blanks, control characters and marks without width before a formula.
_FORMULA = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*"
    "[=+@\uff1d\uff0b\uff0d\uff20-]|[\t\r\n]"
)
QUOTE = '"'
MAX_SHORT_CHARS = 100  # for a field that is kept for the next rows
_NEEDS_QUOTES = re.compile(r'[,"\r\n]')
ROWS_PER_GROUP = 4_000  # rows of Parquet in memory at once
NOT_IN_CSV = ("text_path", "text_sha256", "cell", "framework_fingerprint", "account")
CSV_COLUMNS = tuple(name for name in FINDING_COLUMNS if name not in NOT_IN_CSV)
_csv_values = itemgetter(*CSV_COLUMNS)
PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "score": parse_number,
    "text_change": parse_number,
    "response_id": parse_id,
    "carried": bool,
}

Row = Mapping[str, Any]


def has_pyarrow() -> bool:
    """Return whether the `parquet` extra is installed."""
    return find_spec("pyarrow") is not None


class CsvTables:
    """One CSV file per framework, for spreadsheets, and no others.

    :ivar files: by framework
    """

    def __init__(self, folder: Location) -> None:
        self.files: dict[str, TableFile] = {}
        self._names: set[str] = set()
        self._folder = folder

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows with all columns of findings."""
        for framework, group in groupby(rows, lambda row: str(row["framework"])):
            if framework not in self.files:
                name = names.safe_distinct(framework, "framework")
                if name.casefold() in self._names:
                    name = f"{name}~{names.digest(framework)}"
                self._names.add(name.casefold())
                self.files[framework] = TableFile(self._folder / f"{name}.csv")
                self.files[framework].write("\ufeff".encode() + _to_csv([CSV_COLUMNS]))  # for spreadsheets
            self.files[framework].write(_to_csv(map(_csv_values, group)))

    def publish(self) -> None:
        """Remove the files of frameworks without findings, then write the others.

        Not the other way round: a store may take names for equal that differ in case only.
        """
        names_kept = {file.location.path.rpartition("/")[2] for file in self.files.values()}
        for name in self._folder.list_names():
            if name.endswith(".csv") and name not in names_kept:
                (self._folder / name).remove()
        for file in self.files.values():
            file.complete()
            file.replace()


def _to_csv(rows: Iterable[Iterable[Any]]) -> bytes:
    """Return rows as `csv` writes them; it would take twice as long."""
    lines = [
        ",".join(
            [
                "" if value is None
                else _short_field(value) if isinstance(value, str) and len(value) < MAX_SHORT_CHARS
                else _quote(str(_as_text(value)))
                for value in row
            ]
        )
        for row in rows
    ]  # fmt: skip
    return "".join([f"{line}\r\n" for line in lines]).encode("utf-8", "backslashreplace")


@lru_cache(maxsize=256)  # most are the same as in the row before
def _short_field(text: str) -> str:
    return _quote(_as_text(text))


def _quote(text: str) -> str:
    return f'"{text.replace(QUOTE, QUOTE * 2)}"' if _NEEDS_QUOTES.search(text) else text


class ParquetTable:
    """A Parquet file, written in groups of rows; the night is in its path, in the way of Hive."""

    def __init__(self, location: Location) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {
            "score": pa.float64(),
            "text_change": pa.float64(),
            "response_id": pa.int64(),
            "carried": pa.bool_(),
        }
        columns = [name for name in FINDING_COLUMNS if name != "night"]
        self._schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
        self._location = location
        self._rows: list[Row] = []
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed when it is published
        self._writer = pq.ParquetWriter(self._file.name, self._schema)

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows with all columns of findings."""
        self._rows += rows
        if len(self._rows) >= ROWS_PER_GROUP:
            self._flush()

    def publish(self) -> None:
        """Write the file."""
        if self._rows:
            self._flush()
        self._writer.close()
        put_sync(self._location, Path(self._file.name))

    def _flush(self) -> None:
        import pyarrow as pa

        rows, self._rows = self._rows, []
        kind = pa.struct(self._schema)
        try:
            group = pa.array(rows, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # they may contain anything
            names = self._schema.names
            group = pa.array([{name: _clean(name, row[name]) for name in names} for row in rows], kind)
        self._writer.write_batch(pa.RecordBatch.from_struct_array(group))

    def __del__(self) -> None:
        self._file.close()


def _as_text(value: Any) -> Any:
    """Return a value as a spreadsheet shows it: a text, even if it looks like a formula."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _clean(name: str, value: Any) -> Any:
    """Return a value as its column needs it; a manifest of others may contain anything."""
    if name in PARSERS:
        return PARSERS[name](value)
    return None if value is None else str(value).encode("utf-8", "backslashreplace").decode()


def copy_csv(old: Path, new: Path, left_out: Collection[str]) -> int:
    """Copy a CSV file without the rows of some sources; return how many these are."""
    escaped = {_as_text(source).encode("utf-8", "backslashreplace").decode() for source in left_out}
    count = 0
    options: Any = {"newline": "", "encoding": "utf-8", "errors": "surrogateescape"}
    limit = csv.field_size_limit(MAX_LINE_BYTES)  # for all readers: 128 KiB unless told otherwise
    try:
        with old.open("rt", **options) as source, new.open("wt", **options) as target:
            rows, writer = csv.reader(source), csv.writer(target)
            header = next(rows, [])
            writer.writerow(header)
            column = header.index("source") if "source" in header else -1
            for row in rows:
                if 0 <= column < len(row) and row[column] in escaped:
                    count += 1
                else:
                    writer.writerow(row)
    finally:
        csv.field_size_limit(limit)
    return count


def copy_parquet(old: Path, new: Path, left_out: Collection[str]) -> int:
    """Copy a Parquet file without the rows of some sources; return how many these are."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    count, file = 0, pq.ParquetFile(old)
    if "source" not in file.schema_arrow.names:
        return 0
    gone = pa.array([_clean("source", source) for source in left_out], pa.string())
    with pq.ParquetWriter(new, file.schema_arrow) as writer:
        for batch in file.iter_batches(ROWS_PER_GROUP):
            kept = batch.filter(pc.invert(pc.is_in(batch["source"], value_set=gone)))
            count += batch.num_rows - kept.num_rows
            writer.write_batch(kept)
    return count
