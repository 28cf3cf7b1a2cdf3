from __future__ import annotations

from datetime import UTC, datetime

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
