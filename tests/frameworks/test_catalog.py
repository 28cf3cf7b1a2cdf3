"""The catalog: identity, storage, comparison and event payload."""

from __future__ import annotations

import json
import random
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.client.models import Framework
from airflow_provider.frameworks import catalog as module
from airflow_provider.frameworks.catalog import EMPTY, Catalog, Difference, Entry, compare
from airflow_provider.frameworks.watcher import (
    MAX_DETAILS_CHARS,
    MAX_IDS,
    MAX_TEXT_CHARS,
    build_payload,
    event_id,
)
from tests.support.effort import growth


def catalog(*frameworks: dict[str, Any]) -> Catalog:
    return Catalog.parse(Framework.model_validate(each) for each in frameworks)


def dora(**changes: Any) -> dict[str, Any]:
    criteria = [
        {"name": "Exit strategies", "codeName": "D-1", "description": "A transition period."},
        {"name": "Audit rights", "codeName": "D-2", "description": "May inspect."},
    ]
    return {"id": 1, "name": "Resilience", "codeName": "DORA", "criteria": criteria, **changes}


GDPR = {"id": 2, "name": "Personal data", "codeName": "GDPR", "description": "Of a controller."}


def sent(before: Catalog, after: Catalog) -> dict[str, Any]:
    event = build_payload(compare(before, after), before, after, "c")
    assert json.loads(json.dumps(event)) == event
    return event


def test_a_new_framework_is_added_with_the_number_of_its_criteria() -> None:
    event = sent(catalog(GDPR), catalog(dora(), GDPR))
    assert event["frameworks"]["added"] == [
        {"id": "1", "code_name": "DORA", "name": "Resilience", "criteria": 2}
    ]
    assert event["summary"] == "1 framework added (DORA)"
    assert event["framework_ids"] == ["1"]
    assert not any(event["criteria"].values())


def test_a_missing_framework_is_removed() -> None:
    difference = compare(catalog(dora(), GDPR), catalog(GDPR))
    assert difference.may_remove
    assert difference.summary == "1 framework removed (DORA)"
    assert difference.framework_ids == []


def test_a_changed_text_is_sent_with_before_and_after() -> None:
    before, after = catalog(GDPR), catalog({**GDPR, "description": "Of a processor.", "name": None})
    event = sent(before, after)
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
    assert compare(before, after).may_remove
    assert not compare(after, before).may_remove


def test_added_removed_and_changed_criteria_come_with_their_framework() -> None:
    criteria = [
        {"name": "Exit strategies", "codeName": "D-1", "description": "Two transition periods."},
        {"name": "Locations", "codeName": "D-3"},
    ]
    event = sent(catalog(dora(), GDPR), catalog(dora(criteria=criteria), GDPR))
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
    before, after = catalog(dora(), GDPR), catalog(GDPR, shuffled)
    assert before.digest == after.digest
    assert compare(before, after) == Difference(())
    assert compare(before, after).summary == "nothing"


def test_entries_without_an_id_are_identified_by_name() -> None:
    nameless: dict[str, Any] = {"criteria": [{"name": "only a name"}, {}]}
    before = catalog({"codeName": "A"}, {"name": "B"}, nameless)
    assert list(before.frameworks) == ["", "A", "B"]
    assert before.frameworks["B"].title == "B"
    assert list(before.frameworks[""].criteria) == ["", "only a name"]
    assert before.criteria_count == 2


def test_equal_ids_are_numbered() -> None:
    twins = [{"id": 1, "name": "b"}, {"id": 1, "name": "a"}, {"id": 1, "name": "c"}]
    assert list(catalog(*twins).frameworks) == ["1", "1 (2)", "1 (3)"]
    assert catalog(*twins).digest == catalog(*twins[::-1]).digest


def test_characters_that_databases_refuse_are_replaced() -> None:
    (entry,) = catalog({"id": "\0", "name": "a\ud800b\0c"}).frameworks.values()
    assert (entry.key, entry.texts) == ("\ufffd", {"name": "a?b\ufffdc"})


def reload(one: Catalog) -> Catalog:
    """Return the catalog as it is read back from the stored state."""
    return Catalog.load(json.loads(json.dumps(one.dump())))


def test_a_stored_catalog_has_names_and_digests() -> None:
    stored = catalog(dora(description="Of banks.", criteria=dora()["criteria"][:1])).dump()
    assert (stored["frameworks"], stored["criteria"]) == (1, 1)
    assert stored["catalog"] == {
        "1": {
            "name": "Resilience",
            "code_name": "DORA",
            "description": f"sha256:{sha256(b'Of banks.').hexdigest()[:16]}",
            "criteria": {
                "D-1": {
                    "name": "Exit strategies",
                    "code_name": "D-1",
                    "description": f"sha256:{sha256(b'A transition period.').hexdigest()[:16]}",
                }
            },
        }
    }


def test_a_stored_catalog_is_equal_to_the_current_one() -> None:
    one = catalog(dora(name="n" * 100), GDPR)
    assert not compare(reload(one), one)
    assert reload(one).digest == one.digest
    assert (reload(one).framework_count, reload(one).criteria_count) == (2, 2)


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"digest": "d"},
        {"digest": "d", "frameworks": None, "criteria": 1},
        {"digest": "d", "frameworks": 1, "criteria": 1, "catalog": None},
        {"digest": "d", "frameworks": 1, "criteria": 1, "catalog": {"1": 7}},
        {"digest": "d", "frameworks": 1, "criteria": 1, "catalog": {"1": {"criteria": 7}}},
        {"digest": "d", "frameworks": 1, "criteria": 1, "catalog": {"1": {"count": "x"}}},
    ],
)
def test_anything_else_is_not_a_stored_catalog(stored: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Catalog.load(stored)


def test_the_description_before_is_a_digest_where_the_catalog_was_stored() -> None:
    before, after = catalog(GDPR), catalog({**GDPR, "description": "Of a processor.", "name": None})
    event = sent(reload(before), after)
    fields = event["frameworks"]["changed"][0]["fields"]
    digest = before.dump()["catalog"]["2"]["description"]
    assert fields == {
        "name": {"before": "Personal data", "after": None},
        "description": {"before": digest, "after": "Of a processor."},
    }
    assert digest.startswith("sha256:")
    assert event["summary"] == "1 framework changed (GDPR: name, description)"


def test_three_hundred_criteria_with_long_texts_are_compared_one_by_one() -> None:
    jitter = random.Random(1)
    texts = ["".join(jitter.choices("abcdefghij ", k=400)) for _ in range(300)]
    criteria = [{"codeName": f"C{number}", "description": text} for number, text in enumerate(texts)]
    one = catalog(dora(criteria=criteria))
    assert len(json.dumps(one.dump())) < module.MAX_STORED_CHARS
    stored = reload(one)
    criteria[7]["description"] += "!"
    (change,) = compare(stored, catalog(dora(criteria=criteria))).changes
    assert change.title == "C7 of DORA: description"


def many(count: int) -> list[dict[str, Any]]:
    """Return frameworks with texts that no compression makes small."""
    jitter = random.Random(1)
    texts = [f"{jitter.getrandbits(800):x}" for _ in range(count)]
    criteria = [{"codeName": f"C{number}", "description": text} for number, text in enumerate(texts)]
    return [{"id": each, "name": f"Name {each}", "criteria": criteria[each::9]} for each in range(9)]


def test_with_many_criteria_changes_are_known_by_framework() -> None:
    frameworks = many(9_000)
    one = catalog(*frameworks)
    assert len(json.dumps(one.dump())) <= module.MAX_STORED_CHARS + 200
    stored = reload(one)
    assert not compare(stored, one)
    assert stored.criteria_count == one.criteria_count == 9_000
    frameworks[4]["criteria"][7]["description"] += "!"
    del frameworks[8]
    event = sent(stored, catalog(*frameworks, {**GDPR, "id": 77}))
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


def test_a_change_without_details_may_remove_something() -> None:
    frameworks = many(9_000)
    stored = reload(catalog(*frameworks))
    frameworks[4]["criteria"].append({"name": "New"})
    assert compare(stored, catalog(*frameworks)).may_remove


def test_with_many_frameworks_a_change_lists_all_that_may_be_different() -> None:
    jitter = random.Random(1)
    frameworks = [{"id": number, "name": f"{jitter.getrandbits(80):x}"} for number in range(5_000)]
    one = catalog(*frameworks)
    assert one.dump() == {"digest": one.digest, "frameworks": 5_000, "criteria": 0}
    stored = reload(one)
    assert not compare(stored, one)
    difference = compare(stored, catalog(*frameworks[1:], GDPR))
    assert difference
    assert difference.may_remove
    event = sent(stored, catalog(*frameworks[3:], dora()))
    assert event["summary"] == (
        "5,000 frameworks before, 4,998 now; 0 criteria before, 2 now (too many to know which are different)"
    )
    assert not event["details_known"]
    assert event["framework_ids"][:3] == ["1", "10", "100"]
    assert len(event["framework_ids"]) + event["left_out"] == 4_998
    assert len(json.dumps(event)) < MAX_DETAILS_CHARS


def test_equal_names_are_numbered_in_linear_time() -> None:
    def number_names(count: int) -> None:
        catalog(*[{"name": "x", "description": str(number)} for number in range(count)])

    assert growth(number_names, 50, 200) < 5  # 16 where it is quadratic


def test_names_that_look_numbered_stay_distinct() -> None:
    found = catalog({"name": "x"}, {"name": "x"}, {"name": "x (2)"}).frameworks
    assert [(key, each.title) for key, each in found.items()] == [
        ("x", "x"),
        ("x (2)", "x"),
        ("x (2) (2)", "x (2)"),
    ]


def test_ids_of_an_event_are_whole_and_bounded() -> None:
    event = sent(EMPTY, catalog(*[{"id": f"{number}" + "\N{SNOWMAN}" * 500} for number in range(100)]))
    assert len(json.dumps(event)) < 2 * MAX_DETAILS_CHARS + 5_000
    assert all(each.endswith("\N{SNOWMAN}" * 500) for each in event["framework_ids"])


def test_long_texts_are_cut() -> None:
    event = sent(catalog(GDPR), catalog({**GDPR, "description": "x" * 1000}))
    shown = event["frameworks"]["changed"][0]["fields"]["description"]
    assert shown == {"before": GDPR["description"], "after": "x" * MAX_TEXT_CHARS + "…"}


def test_an_event_is_small_however_much_has_changed() -> None:
    names = "n" * 10_000
    many = [
        {"id": f"{number}", "name": names, "codeName": names, "criteria": [{"name": names}]}
        for number in range(MAX_IDS + 100)
    ]
    event = sent(EMPTY, catalog(*many))
    assert len(json.dumps(event)) < 2 * MAX_DETAILS_CHARS
    shown = sum(len(each) for each in event["frameworks"].values())
    assert event["left_out"] == 100 + len(many) - shown
    assert f"600 frameworks added ({'n' * 59}…, " in event["summary"]
    assert event["summary"].endswith(" and 595 more)")
    assert event["first_snapshot"]


def test_a_change_has_the_same_id_for_every_watcher() -> None:
    one, two = catalog(GDPR), catalog(dora())
    assert event_id(one, two) == event_id(catalog(GDPR), catalog(dora()))
    assert len({event_id(one, two), event_id(two, one), event_id(EMPTY, one)}) == 3


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
CATALOGS = st.lists(FRAMEWORKS, max_size=4)


@settings(max_examples=50, deadline=None)
@given(CATALOGS, CATALOGS, st.randoms())
def test_there_is_a_difference_exactly_where_something_is_different(
    first: list[Any], second: list[Any], jitter: random.Random
) -> None:
    before, after = catalog(*first), catalog(*second)
    there, back = compare(before, after), compare(after, before)
    assert bool(there.changes) == bool(back.changes) == (before.digest != after.digest)
    assert len(there.changes) == len(back.changes)
    assert (before.frameworks == after.frameworks) == (before.digest == after.digest)
    assert sent(before, after)["left_out"] == 0
    for each in first:
        jitter.shuffle(each["criteria"])
    jitter.shuffle(first)
    assert catalog(*first).digest == before.digest


@settings(max_examples=50, deadline=None)
@given(CATALOGS, CATALOGS)
def test_a_stored_catalog_is_compared_as_if_it_were_complete(first: list[Any], second: list[Any]) -> None:
    before, after = catalog(*first), catalog(*second)
    assert [each.title for each in compare(reload(before), after).changes] == [
        each.title for each in compare(before, after).changes
    ]


@settings(max_examples=50, deadline=None)
@given(CATALOGS, CATALOGS)
def test_an_outline_is_different_exactly_where_something_is_different(
    first: list[Any], second: list[Any]
) -> None:
    before, after = catalog(*first), catalog(*second)
    outline = {key: Entry.load(key, each.outline()) for key, each in before.frameworks.items()}
    changes = compare(Catalog(outline, before.digest), after).changes
    assert bool(changes) == (before.digest != after.digest)
