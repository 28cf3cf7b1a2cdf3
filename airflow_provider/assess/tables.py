"""The tables of a night: JSON Lines, one CSV file per framework, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import gzip
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_provider.assess.findings import FINDING_COLUMNS
from airflow_provider.client.findings import parse_id, parse_number
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import GZIP, TableFile
from airflow_provider.storage.locations import Location, storage_errors

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
ROWS_PER_GROUP = 1_000  # of Parquet, in memory at once
NOT_IN_CSV = ("text_path", "text_sha256", "cell", "framework_fingerprint")
CSV_COLUMNS = tuple(name for name in FINDING_COLUMNS if name not in NOT_IN_CSV)
PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "score": parse_number,
    "response_id": parse_id,
    "carried": bool,
}

Row = Mapping[str, Any]


def has_pyarrow() -> bool:
    """Return whether the `parquet` extra is installed."""
    return find_spec("pyarrow") is not None


def write_csv(folder: Location, rows: Iterable[Row]) -> dict[str, Location]:
    """Write one CSV file per framework, for spreadsheets, and no others; return them by framework."""
    files: dict[str, TableFile] = {}
    writers: dict[str, Any] = {}
    for row in rows:
        framework = str(row["framework"])
        if framework not in writers:
            files[framework] = TableFile(folder / f"{_file_name(framework)}.csv")
            writers[framework] = _csv_writer(files[framework].write)
        writers[framework].writerow([_cell_text(row.get(name)) for name in CSV_COLUMNS])
    for file in files.values():
        file.complete()
        file.publish()
    targets = {framework: file.location for framework, file in files.items()}
    _remove_others(folder, targets.values())
    return targets


def _csv_writer(write: Callable[[bytes], Any]) -> Any:
    """Write CSV as spreadsheets read it: with a byte order mark."""
    write("\ufeff".encode())
    file: Any = SimpleNamespace(write=lambda text: write(text.encode("utf-8", "backslashreplace")))
    writer = csv.writer(file)
    writer.writerow(CSV_COLUMNS)
    return writer


def _remove_others(folder: Location, kept: Iterable[Location]) -> None:
    """Remove files of frameworks that have no findings any more: nothing else would overwrite them."""
    names_kept = {location.path.casefold().rpartition("/")[2] for location in kept}
    for name in folder.list_names():
        if name.removesuffix(GZIP).endswith(".csv") and name.casefold() not in names_kept:
            with storage_errors(folder, "cleaned up"), suppress(FileNotFoundError):
                folder.fs.rm_file((folder / name).path)


def write_parquet(location: Location, rows: Iterable[Row]) -> None:
    """Write a Parquet file, in groups of rows; the night is in its path, in the way of Hive."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"score": pa.float64(), "response_id": pa.int64(), "carried": pa.bool_()}
    columns = [name for name in FINDING_COLUMNS if name != "night"]
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    remaining = iter(rows)
    with tempfile.NamedTemporaryFile() as file:
        with pq.ParquetWriter(file.name, schema) as writer:
            while group := list(islice(remaining, ROWS_PER_GROUP)):
                cleaned = [{name: _clean(name, row.get(name)) for name in columns} for row in group]
                writer.write_table(pa.Table.from_pylist(cleaned, schema))
        put_sync(location, Path(file.name))


def _cell_text(value: Any) -> str:
    """Return a value as a spreadsheet shows it: as text, even if it looks like a formula."""
    text = "" if value is None else str(value)
    if isinstance(value, str) and text.startswith(FORMULA_STARTS):
        return f"'{text}"
    return text


def _clean(name: str, value: Any) -> Any:
    """Return a value as its column needs it; a manifest of others may contain anything."""
    if name in PARSERS:
        return PARSERS[name](value)
    if value is None or (isinstance(value, str) and value.isascii()):
        return value  # most are, and shared with other rows
    return str(value).encode("utf-8", "backslashreplace").decode()


def _file_name(framework: str) -> str:
    """Name a file after a framework; different frameworks never share one."""
    name = names.safe(framework, "framework")
    return name if name == framework else f"{name}~{names.digest(framework)}"


def copy_csv(old: Path, new: Path, left_out: Collection[str]) -> int:
    """Copy a CSV file without the rows of some sources; return how many these are."""
    escaped = {_cell_text(source) for source in left_out}
    count = 0
    opened: Any = gzip.open if old.suffix == GZIP else open
    options = {"newline": "", "encoding": "utf-8", "errors": "surrogateescape"}
    with opened(old, "rt", **options) as source, opened(new, "wt", **options) as target:
        rows, writer = csv.reader(source), csv.writer(target)
        header = next(rows, [])
        writer.writerow(header)
        column = header.index("source") if "source" in header else -1
        for row in rows:
            if 0 <= column < len(row) and row[column] in escaped:
                count += 1
            else:
                writer.writerow(row)
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
