"""A night that would assess more than allowed assesses nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider.emulator import Emulator
from tests.support.nights import Nights

TEXTS = {f"in/{number}.pdf": f"An exit plan, version {number}." for number in range(4)}


def run(nights: Nights, texts: dict[str, str], limit: Any) -> dict[str, Any]:
    options = {"frameworks": ["DORA", "GDPR"], "max_submitted": limit}
    return nights.assess_texts(texts, **options).result


def test_a_framework_that_changed_is_not_paid_for_before_someone_agrees(
    service: Emulator, nights: Nights
) -> None:
    assert run(nights, TEXTS, "20%")["assessed"] == 8  # the first night
    frameworks = service.frameworks()
    for framework in frameworks:
        framework["description"] = "Another version." if framework["codeName"] == "GDPR" else ""
    (dora,) = [json.dumps(one) for one in service.frameworks() if one["codeName"] == "DORA"]
    service.set_frameworks([json.loads(dora), *(one for one in frameworks if one["codeName"] == "GDPR")])
    submitted = len(service.assessments())
    with pytest.raises(AirflowFailException) as error:
        run(nights, TEXTS, "20%")
    assert "4 of 8 assessments would be submitted, more than max_submitted=20% allows" in str(error.value)
    assert "GDPR has changed: 4 of 4 documents would be assessed again." in str(error.value)
    assert len(service.assessments()) == submitted
    assert run(nights, TEXTS, "50%")["assessed"] == 4


def test_new_texts_are_counted_for_each_framework(service: Emulator, nights: Nights) -> None:
    run(nights, TEXTS, 1)
    changed = {source: f"{text} Amended." for source, text in TEXTS.items()}
    with pytest.raises(
        AirflowFailException, match="DORA: 4 documents with a new text would be assessed again"
    ):
        run(nights, changed, 1)
    with pytest.raises(AirflowFailException, match="GDPR: 1 document had no verdict"):
        run(nights, {**TEXTS, "in/new.pdf": "New."}, 1)
