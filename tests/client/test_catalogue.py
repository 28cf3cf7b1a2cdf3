"""Two catalogues, and what differs between them."""

from __future__ import annotations

import json
import random
import tracemalloc
import zlib
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.client.models import Framework
from airflow_provider.frameworks import catalogue as module
from airflow_provider.frameworks.catalogue import NOTHING, Catalogue
from airflow_provider.frameworks.comparison import Difference, compare
from airflow_provider.frameworks.events import DETAILS_SHOWN, IDS_SHOWN, TEXT_SHOWN, change_id, payload
from tests.support.effort import growth


def catalogue(*frameworks: dict[str, Any]) -> Catalogue:
    return Catalogue.of(Framework.model_validate(each) for each in frameworks)


def dora(**changes: Any) -> dict[str, Any]:
    criteria = [
        {"name": "Exit strategies", "codeName": "D-1", "description": "A transition period."},
        {"name": "Audit rights", "codeName": "D-2", "description": "May inspect."},
    ]
    return {"id": 1, "name": "Resilience", "codeName": "DORA", "criteria": criteria, **changes}


GDPR = {"id": 2, "name": "Personal data", "codeName": "GDPR", "description": "Of a controller."}


def told(before: Catalogue, after: Catalogue) -> dict[str, Any]:
    event = payload(compare(before, after), before, after, "c", may_be_known=False)
    assert json.loads(json.dumps(event)) == event
    return event


def test_a_new_framework_is_added_with_the_number_of_its_criteria() -> None:
    event = told(catalogue(GDPR), catalogue(dora(), GDPR))
    assert event["frameworks"]["added"] == [
        {"id": "1", "code_name": "DORA", "name": "Resilience", "criteria": 2}
    ]
    assert event["summary"] == "1 framework added (DORA)"
    assert event["framework_ids"] == ["1"]
    assert not any(event["criteria"].values())


def test_a_framework_that_is_gone_is_removed() -> None:
    difference = compare(catalogue(dora(), GDPR), catalogue(GDPR))
    assert difference.takes_away
    assert difference.summary == "1 framework removed (DORA)"
    assert difference.framework_ids == []


def test_a_changed_text_is_told_with_before_and_after() -> None:
    before, after = catalogue(GDPR), catalogue({**GDPR, "description": "Of a processor.", "name": None})
    event = told(before, after)
    assert event["frameworks"]["changed"] == [
        {
            "id": "2",
            "code_name": "GDPR",
            "name": None,
            "fields": {
                "name": {"before": "Personal data", "after": None},
                "description": {"before": "Of a controller.", "after": "Of a processor."},
            },
        }
    ]
    assert event["summary"] == "1 framework changed (GDPR: name, description)"
    assert compare(before, after).takes_away
    assert not compare(after, before).takes_away


def test_criteria_that_are_new_gone_and_changed_are_told_with_their_framework() -> None:
    criteria = [
        {"name": "Exit strategies", "codeName": "D-1", "description": "Two transition periods."},
        {"name": "Locations", "codeName": "D-3"},
    ]
    event = told(catalogue(dora(), GDPR), catalogue(dora(criteria=criteria), GDPR))
    where = {"framework_id": "1", "framework": "DORA"}
    assert event["criteria"] == {
        "added": [{**where, "code_name": "D-3", "name": "Locations"}],
        "removed": [{**where, "code_name": "D-2", "name": "Audit rights"}],
        "changed": [
            {
                **where,
                "code_name": "D-1",
                "name": "Exit strategies",
                "fields": {
                    "description": {"before": "A transition period.", "after": "Two transition periods."}
                },
            }
        ],
    }
    assert event["framework_ids"] == ["1"]
    assert event["summary"] == (
        "1 criterion added (D-3 of DORA); 1 criterion removed (D-2 of DORA); "
        "1 criterion changed (D-1 of DORA: description)"
    )


def test_order_unknown_fields_and_empty_texts_make_no_difference() -> None:
    shuffled = dora(criteria=dora()["criteria"][::-1], description="", owner="somebody", tags=[1])
    before, after = catalogue(dora(), GDPR), catalogue(GDPR, shuffled)
    assert before.digest == after.digest
    assert compare(before, after) == Difference(())
    assert compare(before, after).summary == "nothing"


def test_what_has_no_id_is_known_by_its_names() -> None:
    nameless: dict[str, Any] = {"criteria": [{"name": "only a name"}, {}]}
    before = catalogue({"codeName": "A"}, {"name": "B"}, nameless)
    assert list(before.frameworks) == ["", "A", "B"]
    assert before.frameworks["B"].title == "B"
    assert list(before.frameworks[""].criteria) == ["", "only a name"]
    assert before.criteria_count == 2


def test_those_that_have_the_same_id_are_told_apart() -> None:
    twins = [{"id": 1, "name": "b"}, {"id": 1, "name": "a"}, {"id": 1, "name": "c"}]
    assert list(catalogue(*twins).frameworks) == ["1", "1 (2)", "1 (3)"]
    assert catalogue(*twins).digest == catalogue(*twins[::-1]).digest


def test_what_no_database_takes_is_replaced() -> None:
    (entry,) = catalogue({"id": "\0", "name": "a\ud800b\0c"}).frameworks.values()
    assert (entry.key, entry.texts) == ("\ufffd", {"name": "a?b\ufffdc"})


def test_a_packed_catalogue_is_the_same_when_it_is_unpacked() -> None:
    one = catalogue(dora(), GDPR)
    assert Catalogue.unpack(str(one.pack()), one.digest) == one


@pytest.mark.parametrize("packed", ["", "%", "YWJj", "eJyLjgUAARUAuQ==", "eJyrVkpUslJQSlaqBQAQXALs", None])
def test_anything_else_is_no_packed_catalogue(packed: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Catalogue.unpack(packed, "")


def test_a_large_catalogue_is_remembered_short_and_still_compared_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jitter = random.Random(1)
    texts = ["".join(jitter.choices("abcdefghij ", k=400)) for _ in range(300)]
    criteria = [{"codeName": f"C{number}", "description": text} for number, text in enumerate(texts)]
    one = catalogue(dora(criteria=criteria))
    monkeypatch.setattr(module, "PACKED_LIMIT", 40_000)
    packed = str(one.pack())
    assert len(packed) < 40_000
    remembered = Catalogue.unpack(packed, one.digest)
    assert remembered != one
    assert not compare(remembered, one).changes
    criteria[7]["description"] += "!"
    (change,) = compare(remembered, catalogue(dora(criteria=criteria))).changes
    assert change.title == "C7 of DORA: description"


def many(count: int) -> list[dict[str, Any]]:
    """Return frameworks with texts that no compression makes small."""
    jitter = random.Random(1)
    texts = [f"{jitter.getrandbits(800):x}" for _ in range(count)]
    criteria = [{"codeName": f"C{number}", "description": text} for number, text in enumerate(texts)]
    return [{"id": each, "name": f"Name {each}", "criteria": criteria[each::9]} for each in range(9)]


def test_where_there_are_many_criteria_it_is_still_known_which_frameworks_are_different() -> None:
    frameworks = many(9_000)
    one = catalogue(*frameworks)
    packed = one.pack()
    assert packed is not None
    assert len(packed) <= module.PACKED_LIMIT
    remembered = Catalogue.unpack(packed, one.digest)
    assert not compare(remembered, one)
    assert remembered.criteria_count == one.criteria_count == 9_000
    frameworks[4]["criteria"][7]["description"] += "!"
    del frameworks[8]
    event = told(remembered, catalogue(*frameworks, {**GDPR, "id": 77}))
    assert (
        event["summary"]
        == "1 framework added (GDPR); 1 framework removed (Name 8); 1 framework changed (Name 4)"
    )
    assert event["framework_ids"] == ["4", "77"]
    assert event["frameworks"]["changed"][0] == {
        "id": "4",
        "code_name": None,
        "name": "Name 4",
        "criteria": 1_000,
    }
    assert event["frameworks"]["removed"][0]["criteria"] == 1_000


def test_a_change_without_details_may_take_something_away() -> None:
    frameworks = many(9_000)
    remembered = remembered_of(catalogue(*frameworks))
    frameworks[4]["criteria"].append({"name": "New"})
    assert compare(remembered, catalogue(*frameworks)).takes_away


def remembered_of(one: Catalogue) -> Catalogue:
    packed = one.pack()
    return one.counted() if packed is None else Catalogue.unpack(packed, one.digest)


def test_of_any_number_of_frameworks_a_change_is_noticed_and_all_that_may_be_different_are_named() -> None:
    jitter = random.Random(1)
    frameworks = [{"id": number, "name": f"{jitter.getrandbits(80):x}"} for number in range(5_000)]
    one = catalogue(*frameworks)
    assert one.pack() is None
    remembered = one.counted()
    assert not compare(remembered, one)
    difference = compare(remembered, catalogue(*frameworks[1:], GDPR))
    assert difference
    assert difference.takes_away
    event = told(remembered, catalogue(*frameworks[3:], dora()))
    assert event["summary"] == (
        "5,000 frameworks before, 4,998 now; 0 criteria before, 2 now (too many to know which are different)"
    )
    assert not event["details_known"]
    assert event["framework_ids"][:3] == ["1", "10", "100"]
    assert len(event["framework_ids"]) + event["left_out"] == 4_998
    assert len(json.dumps(event)) < DETAILS_SHOWN


def test_too_much_is_not_even_tried_to_be_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = catalogue(*[{"id": number} for number in range(200)])
    monkeypatch.setattr(module, "UNPACKED_LIMIT", 199)
    monkeypatch.setattr(module, "_plain", lambda _: pytest.fail("not even as JSON"))
    assert one.pack() is None


@pytest.mark.parametrize("size", [1 << 21, 1 << 27])
def test_a_bomb_is_unpacked_only_so_far(size: int) -> None:
    packed = b64encode(zlib.compress(b" " * size)).decode()
    tracemalloc.start()
    try:
        known = Catalogue.unpack(packed, "d", (7, 8))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20  # whoever traces the test allocates, too
    assert (known.digest, known.criteria_count, known.framework_count) == ("d", 8, 7)  # but no details


def test_a_memory_that_an_earlier_version_made_too_long_is_of_use_still() -> None:
    known = Catalogue.unpack("A" * (module.PACKED_LIMIT + 4), "d", (7, 8))
    assert compare(known, catalogue(GDPR)).takes_away


def test_deep_nesting_is_no_packed_catalogue() -> None:
    with pytest.raises(ValueError, match="no packed catalogue"):
        Catalogue.unpack(b64encode(zlib.compress(b'{"a":' * 50_000)).decode(), "")


def test_frameworks_of_one_name_are_told_apart_in_linear_time() -> None:
    def tell_apart(count: int) -> None:
        catalogue(*[{"name": "x", "description": str(number)} for number in range(count)])

    assert growth(tell_apart, 1_000, 4_000) < 8  # 16 where it is quadratic


def test_names_that_look_like_numbered_ones_are_told_apart_too() -> None:
    found = catalogue({"name": "x"}, {"name": "x"}, {"name": "x (2)"}).frameworks
    assert [(key, each.title) for key, each in found.items()] == [
        ("x", "x"),
        ("x (2)", "x"),
        ("x (2) (2)", "x (2)"),
    ]


def test_ids_of_an_event_are_whole_and_bounded() -> None:
    event = told(NOTHING, catalogue(*[{"id": f"{number}" + "\N{SNOWMAN}" * 500} for number in range(100)]))
    assert len(json.dumps(event)) < 2 * DETAILS_SHOWN + 5_000
    assert all(each.endswith("\N{SNOWMAN}" * 500) for each in event["framework_ids"])


def test_long_texts_are_shown_from_where_they_differ() -> None:
    before, after = "x" * 1000 + "old" + "y" * 1000, "x" * 1000 + "new" + "y" * 1000
    event = told(catalogue({**GDPR, "description": before}), catalogue({**GDPR, "description": after}))
    shown = event["frameworks"]["changed"][0]["fields"]["description"]
    assert shown["before"].startswith("…" + "x" * 40 + "oldyyy")
    assert shown["after"].startswith("…" + "x" * 40 + "newyyy")
    assert all(len(each) <= TEXT_SHOWN + 2 for each in shown.values())


def test_an_event_is_small_however_much_has_changed() -> None:
    names = "n" * 10_000
    many = [
        {"id": f"{number}", "name": names, "codeName": names, "criteria": [{"name": names}]}
        for number in range(IDS_SHOWN + 100)
    ]
    event = told(NOTHING, catalogue(*many))
    assert len(json.dumps(event)) < 2 * DETAILS_SHOWN
    shown = sum(len(each) for each in event["frameworks"].values())
    assert event["left_out"] == 100 + len(many) - shown
    assert f"600 frameworks added ({'n' * 59}…, " in event["summary"]
    assert event["summary"].endswith(" and 595 more)")
    assert event["first_sight"]


def test_a_change_has_the_same_id_wherever_it_is_noticed() -> None:
    one, two = catalogue(GDPR), catalogue(dora())
    assert change_id(one, two) == change_id(catalogue(GDPR), catalogue(dora()))
    assert len({change_id(one, two), change_id(two, one), change_id(NOTHING, one)}) == 3


TEXTS = st.none() | st.sampled_from(
    ["", "a", "b", "a" * 60, "a" * 61, "a" * 90, "a" * 89 + "b", "\0", "\ud800", "é"]
)
CRITERIA = st.fixed_dictionaries({"name": TEXTS, "codeName": st.sampled_from("ABC"), "description": TEXTS})
FRAMEWORKS = st.fixed_dictionaries(
    {
        "id": st.sampled_from([1, 2, 3, "a"]),
        "name": TEXTS,
        "codeName": TEXTS,
        "description": TEXTS,
        "criteria": st.lists(CRITERIA, max_size=4),
    }
)
CATALOGUES = st.lists(FRAMEWORKS, max_size=4)


@settings(deadline=None)
@given(CATALOGUES, CATALOGUES, st.randoms())
def test_there_is_a_difference_exactly_where_something_is_different(
    first: list[Any], second: list[Any], jitter: random.Random
) -> None:
    before, after = catalogue(*first), catalogue(*second)
    there, back = compare(before, after), compare(after, before)
    assert bool(there.changes) == bool(back.changes) == (before.digest != after.digest)
    assert len(there.changes) == len(back.changes)
    assert (before.frameworks == after.frameworks) == (before.digest == after.digest)
    assert told(before, after)["left_out"] == 0
    for each in first:
        jitter.shuffle(each["criteria"])
    jitter.shuffle(first)
    assert catalogue(*first).digest == before.digest


@settings(deadline=None)
@given(CATALOGUES, CATALOGUES)
def test_what_is_remembered_in_short_is_compared_as_if_it_were_whole(
    first: list[Any], second: list[Any]
) -> None:
    before, after = catalogue(*first), catalogue(*second)
    short = module._pack(module._json(module._shortened(module._plain(before.frameworks))))
    remembered = Catalogue.unpack(short, before.digest)
    assert [each.title for each in compare(remembered, after).changes] == [
        each.title for each in compare(before, after).changes
    ]
