"""The tables of a night: JSON Lines, one CSV file per framework, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, cast

from airflow_provider.assess.findings import FINDING_COLUMNS
from airflow_provider.client.findings import parse_id, parse_number
from airflow_provider.storage import names
from airflow_provider.storage.atomic import writing
from airflow_provider.storage.jsonl import to_line
from airflow_provider.storage.locations import Location, storage_errors

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
BYTES_PER_GROUP = 1 << 20  # of a row group, as pyarrow keeps it; each framework has a table, all open at once
ROWS_PER_BATCH = 250  # as Python objects, which take several times the memory
CSV_COLUMNS = tuple(name for name in FINDING_COLUMNS if name not in ("text_path", "text_sha256", "cell"))
PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "score": parse_number,
    "response_id": parse_id,
    "carried": bool,
}

Row = Mapping[str, Any]
Write = Callable[[bytes], Any]


def has_pyarrow() -> bool:
    """Tell whether the `parquet` extra is installed."""
    try:
        import pyarrow.parquet  # noqa: F401 - only whether it can be imported
    except ImportError:
        return False
    return True


def write_jsonl(location: Location, rows: Iterable[Row]) -> None:
    """Write rows as JSON Lines, atomically, in constant memory."""
    with writing(location) as write:
        for row in rows:
            write(to_line(row))


def write_csv(folder: Location, rows: Iterable[Row]) -> dict[str, Location]:
    """Write one CSV file per framework, for spreadsheets, and no others; return them by framework."""
    tables = _write_by_framework(rows, lambda framework: folder / f"{_file_name(framework)}.csv", _CsvFile)
    _remove_others(folder, ".csv", tables, depth=1)
    return tables


def write_parquet(folder: Location, night: str, name: str, rows: Iterable[Row]) -> dict[str, Location]:
    """Write Parquet files, Hive-partitioned by night and framework; return them by framework.

    Files that an earlier attempt has written for other frameworks are removed.

    :param folder: of the whole data set, the same for all nights
    :param night: a date
    :param name: of the files, which no other task instance has
    """

    def target(framework: str) -> Location:
        return folder / f"night={night}" / f"framework={_file_name(framework)}" / f"{name}.parquet"

    tables = _write_by_framework(rows, target, _ParquetFile)
    _remove_others(folder / f"night={night}", f"/{name}.parquet", tables, depth=2)
    return tables


def _remove_others(folder: Location, ending: str, tables: Mapping[str, Location], *, depth: int) -> None:
    """Remove tables of frameworks that have no findings any more: nothing else would overwrite them.

    :param depth: how many parts of a path tell tables apart; stores may write those before it differently
    """

    def name(path: str) -> list[str]:
        return path.casefold().split("/")[-depth:]

    fs, kept = folder.fs, [name(each.path) for each in tables.values()]
    with storage_errors(folder, "cleaned up"):
        fs.invalidate_cache()
        found = fs.find(folder.path) if fs.exists(folder.path.rstrip("/")) else []
        for path in found:
            if path.endswith(ending) and name(path) not in kept:
                with suppress(FileNotFoundError):
                    fs.rm_file(path)


def _write_by_framework(
    rows: Iterable[Row], target: Callable[[str], Location], table: type[_Table]
) -> dict[str, Location]:
    targets: dict[str, Location] = {}
    tables: dict[str, _Table] = {}
    with ExitStack() as stack:
        for row in rows:
            framework = str(row["framework"])
            if framework not in tables:
                targets[framework] = target(framework)
                tables[framework] = table(stack.enter_context(writing(targets[framework])))
                stack.callback(tables[framework].abandon)
            tables[framework].add(row)
        for each in tables.values():
            each.close()
    return targets


class _Table(ABC):
    """A table that is written row by row."""

    def __init__(self, write: Write) -> None:
        self._write = write

    @abstractmethod
    def add(self, row: Row) -> None:
        """Add a row."""

    @abstractmethod
    def close(self) -> None:
        """Write the rest."""

    @abstractmethod
    def abandon(self) -> None:
        """Write nothing more; not even a writer that is closed later."""


class _CsvFile(_Table):
    """CSV as spreadsheets read it: with a byte order mark, and without formulas."""

    def __init__(self, write: Write) -> None:
        super().__init__(write)
        self._buffer = io.StringIO(newline="")
        self._writer = csv.writer(self._buffer)
        self._write("\ufeff".encode())
        self._writer.writerow(CSV_COLUMNS)

    def add(self, row: Row) -> None:
        """Add a row."""
        self._writer.writerow([_cell_text(row.get(name)) for name in CSV_COLUMNS])
        if self._buffer.tell() > 1 << 16:
            self._flush()

    def close(self) -> None:
        """Write the rest."""
        self._flush()

    def abandon(self) -> None:
        """Forget the rest."""
        self._buffer.close()

    def _flush(self) -> None:
        self._write(self._buffer.getvalue().encode("utf-8", "backslashreplace"))
        self._buffer.seek(0)
        self._buffer.truncate()


class _ParquetFile(_Table):
    """Parquet, some rows at a time; the partition columns are in the path."""

    def __init__(self, write: Write) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        super().__init__(write)
        kinds = {"score": pa.float64(), "response_id": pa.int64(), "carried": pa.bool_()}
        columns = [name for name in FINDING_COLUMNS if name not in ("night", "framework")]
        self._schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}
        self._batches: list[Any] = []
        self._bytes = 0  # of the batches
        self._pa = pa
        self._sink = _ParquetSink(write)
        self._writer = pq.ParquetWriter(pa.PythonFile(cast("Any", self._sink), mode="w"), self._schema)

    def add(self, row: Row) -> None:
        """Add a row."""
        for name, values in self._columns.items():
            values.append(_clean(name, row.get(name)))
        if len(values) >= ROWS_PER_BATCH:
            self._convert()
            if self._bytes >= BYTES_PER_GROUP:
                self._flush()

    def close(self) -> None:
        """Write the rest."""
        self._convert()
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Write nothing more; not even a writer that is closed later."""
        self._sink.target = len
        self._writer.close()

    def _convert(self) -> None:
        arrays = [self._pa.array(self._columns[each.name], each.type) for each in self._schema]
        batch = self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._batches.append(batch)
        self._bytes += batch.nbytes
        for values in self._columns.values():
            values.clear()

    def _flush(self) -> None:
        table = self._pa.Table.from_batches(self._batches, self._schema)
        if len(table):
            self._writer.write_table(table)
        self._batches, self._bytes = [], 0


class _ParquetSink(io.RawIOBase):
    """An atomic file as pyarrow wants it; closing does not publish it."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.target: Write = write
        self._position = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Add bytes."""
        data = bytes(data)
        self.target(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        """Return how much was written."""
        return self._position


def _cell_text(value: Any) -> str:
    """Return a value as a spreadsheet shows it: as text, even if it looks like a formula."""
    text = "" if value is None else str(value)
    if isinstance(value, str) and text.startswith(FORMULA_STARTS):
        return f"'{text}"
    return text


def _clean(name: str, value: Any) -> Any:
    """Return a value as its column needs it; an index or a manifest of others may contain anything."""
    if name in PARSERS:
        return PARSERS[name](value)
    if value is None or (isinstance(value, str) and value.isascii()):
        return value  # most are, and shared with other rows
    return str(value).encode("utf-8", "backslashreplace").decode()


def _file_name(framework: str) -> str:
    """Name a file after a framework; different frameworks never share one."""
    name = names.safe(framework, "framework")
    return name if name == framework else f"{name}~{names.digest(framework)}"
