from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.nights.reports.charts import (
    DURATIONS,
    SIZES,
    ColumnChart,
    Scale,
    plot_histogram,
    plot_times,
)
from airflow_provider.nights.reports.ingest import quantile
from airflow_provider.nights.reports.page import in_order, stack


def count(chart: ColumnChart) -> int:
    """Return what all bars stand for."""
    return sum(number for column in chart.columns for _, number, _, _ in column.segments)


@given(st.lists(st.floats(0, 1e7), min_size=1))
def test_quantiles_are_exact_and_the_histogram_counts_every_value(values: list[float]) -> None:
    ranked = sorted(values)
    for share, rank in ((0.5, (len(values) + 1) // 2), (1, len(values))):
        assert quantile(values, share) == ranked[rank - 1]
    chart = plot_histogram("Time", values, DURATIONS, "")
    assert chart is not None
    assert count(chart) == len(values)
    assert (chart.marks[0], chart.marks[-1][0]) == ((0, "0"), 100)
    assert len(chart.marks) <= 5


@pytest.mark.parametrize(
    ("values", "scale", "labels", "ends"),
    [
        ([1, 3], DURATIONS, "500 ms, 1 s, 2 s, 5 s", ("1 s to 1.25 s", "2.5 s to 3.2 s")),
        (
            [0.01, 3000],
            DURATIONS,
            "10 ms, 100 ms, 1 s, 10 s, 1 min, 10 min",
            ("10 ms to 12.5 ms", "50 min to 1 h"),
        ),
        ([0.001, 8e5], DURATIONS, "1 ms, 1 s, 1 min, 1 h, 1 d", ("1 ms to 1.25 ms", "8 d or more")),
        ([50, 10**9], SIZES, "100 B, 1 kB, 1 MB", ("below 100 B", "800 MB or more")),
    ],
)
def test_histogram_has_round_bins_and_as_many_labels_as_fit_on_a_phone(
    values: list[float], scale: Scale, labels: str, ends: tuple[str, str]
) -> None:
    chart = plot_histogram("Time", values, scale, "")
    assert chart is not None
    assert ", ".join(label for _, label in chart.ticks) == labels
    assert tuple(chart.columns[place].label for place in (0, -1)) == tuple(
        f"{end}: 1 document" for end in ends
    )


@given(st.lists(st.integers(-(10**10), 10**11), min_size=1, max_size=50), st.integers(1, 400))
def test_a_timeline_counts_every_event_in_few_bars(instants: list[int], many_more: int) -> None:
    times = [*instants, *range(0, many_more * 20_000, 20_000)]

    chart = plot_times(times, None, None)
    assert chart is not None
    assert count(chart) == len(instants) + many_more
    assert chart.slots <= 61


@pytest.mark.parametrize("span", [1, 59, 90, 800, 7_000, 86_400, 500_000, 10**7, 10**9, 3 * 10**11])
def test_a_timeline_has_few_ticks_within_the_chart(span: int) -> None:
    chart = plot_times([0, span - 1], None, None)

    assert chart is not None
    assert 1 <= len(chart.ticks) <= 7
    assert all(0 <= position <= 1 for position, _ in chart.ticks)


def test_a_small_share_stays_visible_and_the_bar_keeps_its_length() -> None:
    segments = stack(in_order({"skipped": 0, "failed": 1, "completed": 99_999}), 200_000)

    assert [kind for kind, *_ in segments] == ["completed", "failed"]
    assert segments[1][3] > 0.5
    assert sum(width for *_, width in segments) == pytest.approx(50)
