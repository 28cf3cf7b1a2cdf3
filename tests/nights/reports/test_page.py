from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from jinja2 import Environment

from airflow_provider.nights.reports import page
from airflow_provider.nights.reports.page import duration, percent, rate, read_time, size


def test_numbers_are_easy_to_read() -> None:
    spans = (0, 0.25, 1, 2.55, 59.6, 75, 3600, 7385, 200_000)
    assert [duration(span) for span in spans] == [
        *("0 ms", "250 ms", "1 s", "2.5 s", "1 min", "1 min 15 s", "1 h", "2 h 3 min", "2 d 7 h"),
    ]
    assert [size(octets) for octets in (0, 999, 1000, 5432, 99_600, 999_700, 10**17)] == [
        *("0 B", "999 B", "1 kB", "5.4 kB", "100 kB", "1 MB", "100 PB"),
    ]
    shares = ((0, 5), (5, 5), (1, 3000), (2999, 3000), (0, 0))
    assert [percent(*share).replace("\u00a0", " ") for share in shares] == [
        *("0 %", "100 %", "<0.1 %", "99.9 %", "0 %"),
    ]
    assert [rate(10, seconds) for seconds in (60, 600)] == [
        *("10 documents per minute", "60 documents per hour"),
    ]


def test_a_time_without_a_zone_is_utc() -> None:
    expected = datetime(2026, 3, 3, 1, tzinfo=UTC).timestamp()
    assert read_time("2026-03-03T01:00:00") == read_time("2026-03-03T02:00:00+01:00") == expected


def test_templates_are_compiled_once_where_their_bytecode_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    compile_template = Environment.compile

    def compile_and_count(
        self: Environment, source: str, name: str, *args: object, **kwargs: object
    ) -> object:
        compiled.append(name)
        return compile_template(self, source, name, *args, **kwargs)  # type: ignore[call-overload] # all of them

    def compiled_by_a_new_process() -> list[str]:
        compiled.clear()
        page._environment.__wrapped__().get_template("error.html")
        return list(compiled)

    monkeypatch.setattr(Environment, "compile", compile_and_count)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    assert "error.html" in compiled_by_a_new_process()  # the folder does not exist, as if it were read-only
    folder = Path(cache_from_source(page.__file__)).parent
    folder.mkdir(parents=True)
    assert "error.html" in compiled_by_a_new_process()
    assert compiled_by_a_new_process() == []
    monkeypatch.setattr(page, "__version__", "0.0.0")  # the filters may be others
    assert "error.html" in compiled_by_a_new_process()
