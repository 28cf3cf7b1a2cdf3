"""Whatever is below a root: an erased document leaves no trace, and nothing of others changes."""

from __future__ import annotations

import html
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markupsafe import escape

from airflow_provider.nights.evidence.erasing import Erasure
from airflow_provider.nights.evidence.holds import place_hold, release_holds
from airflow_provider.storage.jsonl import to_line
from tests.nights.evidence import erasable
from tests.nights.evidence.erasable import KilledError, Tree, read_plainly
from tests.nights.evidence.nights import Nights, decision

TARGET = "file:///docs/Anna & <b>Söhne</b>, 'plan'.pdf"
SIMILAR = [
    "file:///docs/Anna & <b>Söhne</b>, 'plan'.pdf.bak",
    "file:///other/Anna & <b>Söhne</b>, 'plan'.pdf",
    "file:///docs/=plan*.pdf",
    'file:///docs/a"b\\n.pdf',
    "file:///docs/\u202egnp.pdf",
    "file:///docs/a\udcff.pdf",
    "https://example.org/anna?page=1",
]
NAMES = st.lists(st.sampled_from(SIMILAR), min_size=1, max_size=4, unique=True)
# What the tree has beside its nights, and what goes wrong.
EVENTS = st.sets(
    st.sampled_from(
        ["part", "killed", "refused", "held-before", "open-night", "warnings", "list", "decisions"]
    )
)
STEPS = ("_render_again", "_write_table", "_mark_salts", "_remove_lists", "_remove_parts")
FOREIGN = {
    "notes.txt": "Anna said so.",
    "dt=2026-03-01/export.jsonl": json.dumps({"source": TARGET}) + "\n",
    "exports/night=1/a.parquet": "not ours",
    "findings/mine.parquet": "not ours, either",
    "dt=2026-03-01/report.html": f"<p>{TARGET}</p>",
    "dt=2026-03-01/_assess/d/csv.csv": f"source\n{TARGET}\n",
}


@given(
    others=NAMES,
    events=EVENTS,
    step=st.sampled_from(STEPS),
    nights=st.integers(1, 2),
    place=st.integers(0, 3),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_erased_document_is_nowhere_and_all_else_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, others: list[str], events: set[str], step: str, nights: int, place: int
) -> None:
    secrets = {
        TARGET: "Anna has left",
        **{name: f"About {number} others" for number, name in enumerate(others)},
    }
    monkeypatch.setattr(erasable, "SECRET", secrets)
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Nights(f"file://{folder}/out/", Path(folder) / "in"))
        sources = [*others[:place], TARGET, *others[place:]]
        for day in range(1, nights + 1):
            outputs = tree.write_night(day, *sources)
            if "warnings" in events:
                outputs["assessed"]["warnings"] = [f"It has another text than experts decided on: {TARGET}."]
            if "decisions" in events:
                outputs["reviewed"] = [decision(source) for source in sources]
            tree.nights.close(day, **outputs)
        tree.close(5, *others)  # it has vanished
        pending = tree.write_night(6, *sources) if "open-night" in events else None
        if "held-before" in events:
            place_hold(tree.root, TARGET, "A lawsuit", "the lawyer")
            release_holds(tree.root, TARGET, "Settled", "the lawyer")
        if "list" in events:
            (tree.path / "dt=2026-03-01/_work/ingest/d").mkdir(parents=True)
            journal = to_line({"source": TARGET, "uuid": "u"}) + to_line({"source": others[0], "uuid": "v"})
            (tree.path / "dt=2026-03-01/_work/ingest/d/journal-1.jsonl").write_bytes(journal)
        part = tree.path / f"dt=2026-03-01/.{'1' * 16}.part"
        if "part" in events:
            part.write_text("Anna has left")
        for name, text in FOREIGN.items():
            (tree.path / name).parent.mkdir(parents=True, exist_ok=True)
            (tree.path / name).write_text(text)
        before = {name: list(about(tree, name)) for name in others}
        foreign = {name: (tree.path / name).read_bytes() for name in FOREIGN}
        if "refused" in events:
            tree.refused = {job[1] for job in tree.erasure(TARGET).find().jobs}
        if "killed" in events:
            with mock.patch.object(Erasure, step, kill), pytest.raises(KilledError):
                tree.erase(TARGET)

        erasure = tree.erasure(TARGET, resume="killed" in events)
        erasure.run(tree)
        assert bool(erasure.left) == ("part" in events)
        assert {job[1] for job in erasure.jobs_left} == tree.refused
        if "part" in events:
            os.utime(part, (0, 0))
            again = tree.erasure(TARGET)
            again.run(tree)
            assert again.left == []

        assert {name: (tree.path / name).read_bytes() for name in FOREIGN} == foreign
        for name in FOREIGN:
            (tree.path / name).unlink()
        assert list(about(tree, TARGET)) == []
        assert {name: list(about(tree, name)) for name in others} == before
        assert set(tree.statuses().split()) == {"ERASED", "OK"}
        tree.close(7, *others)
        if pending:
            tree.nights.close(6, **pending)
        assert set(tree.statuses().split()) == {"ERASED", "OK"}


def kill(*_: Any) -> None:
    raise KilledError


def about(tree: Tree, source: str) -> Iterator[str]:
    """Yield lines of tables, texts and results about a document, and all other objects that name it."""
    secret = erasable.SECRET[source]
    if source == TARGET:  # also within longer texts, but not as a part of a similar name
        forms = [re.escape(form) + r"(?!\.bak)" for form in spell(source)] + [secret, "Anna has"]
    else:
        forms = [re.escape(form) for form in (json.dumps(source), f'"{source}"', secret)]
    named = re.compile("|".join(forms))
    for path in tree._files():
        name, text = str(path.relative_to(tree.path)), read_plainly(path)
        if path.suffix in (".jsonl", ".gz"):
            yield from (f"{name}: {line}" for line in text.splitlines() if named.search(line))
        elif path.suffix == ".html" and source != TARGET:  # rendered again
            if secret in text:
                yield name
        elif named.search(text):
            yield name


def spell(source: str) -> set[str]:
    """Return how an address may be written."""
    return {source, json.dumps(source)[1:-1], html.escape(source), str(escape(source)), quote(source)}
