from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.assess.payloads import DEFAULT_PAYLOAD, PayloadTemplate

DOCUMENT = {"uuid": "u-1", "source": "in/a.pdf", "bytes": 12}
FRAMEWORK = {"id": "7", "codeName": "DORA", "name": "Resilience"}


@pytest.mark.parametrize(
    ("template", "payload"),
    [
        (DEFAULT_PAYLOAD, {"contentUuid": "u-1", "framework": "DORA"}),
        ([{"{framework[id]}": "{document[bytes]}"}, 1], [{"7": 12}, 1]),  # alone, it keeps its type
        ("{document[uuid]}/{framework[codeName]}", "u-1/DORA"),
    ],
)
def test_placeholders_are_filled_in_at_any_depth(template: Any, payload: Any) -> None:
    made = PayloadTemplate(template)
    made.check([DOCUMENT], [FRAMEWORK])
    assert made.render(DOCUMENT, FRAMEWORK) == payload


def test_a_value_with_braces_is_not_filled_in_again() -> None:
    document = DOCUMENT | {"source": "{framework[id]}"}
    template = PayloadTemplate(["{document[source]}", "x{document[source]}"])
    assert template.render(document, FRAMEWORK) == ["{framework[id]}", "x{framework[id]}"]


@pytest.mark.parametrize(
    "text",
    [
        "{document.uuid}",
        "{{document.uuid}}",
        "{{document[uuid]}}",
        "{doc[uuid]}",
        "{document[uuid]",
        "{}",
        "a } b",
        "{document[]}",
    ],
)
@pytest.mark.parametrize(
    "place", [lambda text: [text], lambda text: {text: 1}, lambda text: {"a": {"b": text}}]
)
def test_a_brace_that_is_not_a_placeholder_is_refused(text: str, place: Any) -> None:
    with pytest.raises(ComplianceInputError, match="brace that is not part of a placeholder"):
        PayloadTemplate(place(text))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{document[uid]}", r"document\[uid\].*'in/a\.pdf' has no such field. It has: bytes, source, uuid"),
        ("{document[x]}{document[uid]}", r"document\[uid\].*'in/a\.pdf'"),  # the first by name
        ("x {framework[code]}", r"framework\[code\].*'Resilience'.*It has: codeName, id, name"),
    ],
)
def test_an_unknown_field_is_refused_before_anything_is_sent(template: str, message: str) -> None:
    with pytest.raises(ComplianceInputError, match=message):
        PayloadTemplate({"a": template}).check([DOCUMENT], [FRAMEWORK])


TWIN = {"id": "8", "codeName": "DORA", "name": "Resilience, second edition"}


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        (DEFAULT_PAYLOAD, [FRAMEWORK, TWIN]),
        (DEFAULT_PAYLOAD, [TWIN]),  # the service can't know that it is not the other one
        ({"framework": 7}, [FRAMEWORK, TWIN]),
    ],
)
def test_a_payload_that_does_not_say_which_framework_is_meant_is_refused(template: Any, wanted: Any) -> None:
    with pytest.raises(
        ComplianceInputError, match=r"the same for the frameworks .*\(id [78]\) and .*\(id [78]\),"
    ):
        PayloadTemplate(template).check([DOCUMENT], wanted, [FRAMEWORK, TWIN])


@pytest.mark.parametrize(
    ("template", "wanted"),
    [({"framework": "{framework[id]}"}, [FRAMEWORK, TWIN]), ({"framework": 7}, [FRAMEWORK])],
)
def test_a_payload_may_name_frameworks_by_any_field_in_which_they_differ(template: Any, wanted: Any) -> None:
    PayloadTemplate(template).check([DOCUMENT], wanted, [FRAMEWORK, TWIN])
    PayloadTemplate(template).check([DOCUMENT], wanted, [FRAMEWORK, FRAMEWORK, TWIN])  # listed twice


@pytest.mark.parametrize(("record", "title"), [({"uuid": "u-1"}, "u-1"), ({"bytes": None}, r"\?")])
def test_a_record_that_lacks_a_field_is_named_as_far_as_possible(record: dict[str, Any], title: str) -> None:
    with pytest.raises(ComplianceInputError, match=rf"'{title}' has no such field"):
        PayloadTemplate("{document[bytes]}").check([record], [])


OWN = {
    "id": "{document[uuid]}",
    "unit": "{document[unit]}",
    "of": "{document[source]}",
    "f": "{framework[name]}",
}
SENT = {"uuid": "1", "unit": "HR", "source": "in/a", "owner": "a", "path": "s3://b/1"}


@pytest.mark.parametrize(
    ("document", "framework", "is_same"),
    [
        ({}, {}, True),
        ({"uuid": "2", "path": "s3://b/2"}, {}, True),  # the same text, processed again
        ({"owner": "b"}, {"id": "8"}, True),  # not sent
        ({"unit": "IT"}, {}, False),
        ({"unit": ["HR"]}, {}, False),
        ({"source": "in/b"}, {}, False),
        ({}, {"name": "Other"}, False),
    ],
)
def test_the_digest_is_that_of_the_payload_as_sent(
    document: dict[str, Any], framework: dict[str, Any], is_same: bool
) -> None:
    template = PayloadTemplate(OWN)
    one = template.digest(SENT, FRAMEWORK)
    assert (template.digest(SENT | document, FRAMEWORK | framework) == one) is is_same
    assert len(one) == 16


def test_the_digest_tells_templates_apart_but_not_the_order_of_their_fields() -> None:
    digests = [
        PayloadTemplate(each).digest(DOCUMENT, FRAMEWORK)
        for each in (DEFAULT_PAYLOAD, {"a": 1}, {"a": "1"}, {"a": 1, "b": 2}, {"b": 2, "a": 1})
    ]
    assert len(set(digests)) == 4
    assert digests[3] == digests[4]
