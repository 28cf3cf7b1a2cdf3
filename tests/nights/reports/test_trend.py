from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.nights.reports.charts import ColumnChart
from airflow_provider.nights.reports.night import CHARTS, Trend, TrendPoint, plot_trend
from tests.nights.reports.pages import ODD

TODAY = date(2026, 3, 31)
NAMES = [*(name for series in CHARTS.values() for *_, name in series), "documents", "missing", "categories"]


def night(days_ago: int, documents: int = 100, **changes: Any) -> TrendPoint:
    totals = {"documents": documents, "completed": documents, **changes}
    return TrendPoint.parse(str(TODAY - timedelta(days_ago)), totals)


def plot(*nights: TrendPoint) -> Trend:
    trend = plot_trend(nights)
    assert trend is not None
    return trend


def places(trend: Trend) -> list[int]:
    return [column.slot for column in trend.charts[0].columns]


def heights(chart: ColumnChart) -> list[float]:
    return [sum(height for *_, height in column.segments) for column in chart.columns]


def test_a_single_night_has_no_trend() -> None:
    assert plot_trend([night(0)]) is None


def test_two_nights_are_two_bars_that_do_not_fill_the_page() -> None:
    more = {"assessments_failed": 2, "changed": 3, "decisions": 4, "categories": {"MISSING": 5}}
    trend = plot(night(0, 50, failed=50, **more), night(1))

    assert places(trend) == [0, 1]
    assert [(chart.title, chart.slots, [words for _, words in chart.legend]) for chart in trend.charts] == [
        ("Documents", 14, ["new or changed", "failed"]),
        ("Failures", 14, ["documents", "assessments"]),
        ("Verdicts", 14, ["missing"]),
        ("Changed verdicts", 14, []),
    ]
    assert heights(trend.charts[0]) == [100, 100]
    assert [chart.columns[1].label for chart in trend.charts] == [
        "2026-03-31: 50 new or changed, 50 failed",
        "2026-03-31: 50 documents, 2 assessments",
        "2026-03-31: 5 missing",
        "2026-03-31: 3 changed",
    ]
    assert trend.charts[0].ticks == [(1.5 / 14, "31 Mar")]
    assert [chart.marks for chart in trend.charts[1:3]] == [
        [(0, "0"), (100, "52")], [(0, "0"), (100, "100\u00a0%")]
    ]  # fmt: skip
    assert trend.nights[0].numbers["decisions"] == 4
    assert not trend.has_gaps


@pytest.mark.parametrize(
    ("number", "mark"),
    [
        (99_999, "99,999"),
        (100_000, "100 k"),
        (10**8, "100 M"),
        (10**11, "100 G"),
        (10**14, "100 T"),
        (10**17, "100 P"),
    ],
)
def test_large_numbers_fit_beside_the_axis(number: int, mark: str) -> None:
    chart = plot(night(0, number), night(1, number)).charts[0]
    assert chart.marks[-1] == (100, mark.replace(" ", "\u00a0"))


@pytest.mark.parametrize(
    ("nights", "days"),  # a label needs 46 of 274 pixels: 3 of 14 slots, 5 of 30, or 14 of 62
    [(4, [28, 31]), (14, [19, 22, 25, 28, 31]), (30, [6, 11, 16, 21, 26, 31]), (62, [3, 17, 3, 17, 31])],
)
def test_the_latest_night_has_a_label_and_others_where_there_is_room(nights: int, days: list[int]) -> None:
    ticks = plot(*map(night, range(nights))).charts[0].ticks
    assert [int(label.split()[0]) for _, label in ticks] == days


@pytest.mark.parametrize(("last", "slots"), [(61, 62), (62, 14)])
def test_nights_far_apart_stand_side_by_side(last: int, slots: int) -> None:
    assert plot(night(0), night(1), night(last)).charts[0].slots == slots


def test_a_night_that_was_not_closed_leaves_a_gap() -> None:
    trend = plot(*(night(days) for days in range(30) if days not in (3, 4)))

    assert trend.has_gaps
    assert trend.charts[0].slots == 30
    assert places(trend)[-4:] == [24, 27, 28, 29]
    assert [label for _, label in trend.charts[0].ticks][-1] == "31 Mar"


def test_weekly_nights_stand_side_by_side() -> None:
    trend = plot(*(night(7 * week) for week in range(20) if week != 5))

    assert trend.charts[0].slots == 20
    assert places(trend)[-6:] == [13, 15, 16, 17, 18, 19]


@pytest.mark.parametrize(
    "days", [(0, 0, 1), (0, 1, 400), (1, 0)], ids=["twice a day", "long ago", "not in order"]
)
def test_nights_that_no_calendar_fits_stand_in_the_order_of_the_chain(days: tuple[int, ...]) -> None:
    assert places(plot(*map(night, days))) == list(range(len(days)))


def test_a_night_with_a_hundred_times_more_documents_does_not_hide_the_others() -> None:
    trend = plot(*(night(days, 10_000 if days == 4 else 100) for days in range(10)))

    chart = trend.charts[0]
    assert chart.marks[-1] == (100, "100")
    assert [column.is_cut for column in chart.columns].count(True) == 1
    assert chart.columns[5].is_cut
    assert heights(chart) == pytest.approx([100] * 10)
    assert chart.cut == ["10,000 on 2026-03-27"]


def test_bars_are_not_cut_where_large_nights_are_usual() -> None:
    trend = plot(*(night(days, 10_000 if days % 3 == 0 else 100) for days in range(12)))

    assert trend.charts[0].marks[-1] == (100, "10,000")
    assert not trend.charts[0].cut
    assert min(heights(trend.charts[0])) >= 3


def test_one_failure_among_many_documents_is_visible() -> None:
    trend = plot(night(0, 100_000, completed=99_999, failed=1), night(1, 100_000))

    documents, failures = trend.charts
    assert [style for style, *_ in documents.columns[1].segments] == ["completed", "failed"]
    assert documents.columns[1].segments[1][3] > 3
    assert sum(height for *_, height in documents.columns[1].segments) == pytest.approx(100)
    assert heights(failures) == [0, 100]
    assert failures.columns[1].label == "2026-03-31: 1 document"
    assert documents.marks[-1] == (100, "100\u00a0k")
    assert documents.columns[1].label == "2026-03-31: 99,999 new or changed, 1 failed"


def test_verdicts_are_shares_by_category() -> None:
    categories = {"SUFFICIENTLY_REGULATED": 60, "MISSING": 30, "ODD": 5, "ODDER": 5}
    trend = plot(night(0, categories=categories), night(1))

    verdicts = trend.charts[1]
    assert verdicts.title == "Verdicts"
    segments = verdicts.columns[1].segments
    assert [(style, round(height)) for style, _, _, height in segments] == [
        *(("sufficient", 60), ("missing", 30), ("other", 10)),
    ]
    assert not verdicts.columns[0].segments


def test_nights_with_missing_tasks_are_marked() -> None:
    trend = plot(night(0), night(1, missing=2), night(2))

    assert [column.is_incomplete for column in trend.charts[0].columns] == [False, True, False]
    assert trend.charts[0].columns[1].label.endswith("100 new or changed, 2 tasks left nothing")


@given(st.lists(st.tuples(ODD, st.dictionaries(st.sampled_from(NAMES), ODD) | ODD), min_size=2, max_size=5))
def test_records_of_any_content_give_a_trend(given_nights: list[tuple[Any, Any]]) -> None:
    trend = plot(*(TrendPoint.parse(*totals) for totals in given_nights))

    assert all(chart.slots >= len(given_nights) for chart in trend.charts)


@given(
    st.lists(st.integers(0, 10**15), min_size=2, max_size=31),
    st.lists(st.integers(0, 10**6), min_size=31, max_size=31),
)
def test_bars_stay_within_the_chart(completed: list[int], failed: list[int]) -> None:
    nights = [
        night(days, number + failures, completed=number, failed=failures)
        for days, (number, failures) in enumerate(zip(completed, failed, strict=False))
    ]
    for chart in plot(*nights).charts:
        for column in chart.columns:
            assert all(height > 0 for *_, height in column.segments)
            assert sum(height for *_, height in column.segments) <= 100.001
