"""Whatever is below a root: an erased document leaves no trace, and nothing of others changes."""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import os
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote
from zlib import crc32

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from markupsafe import escape

from airflow_provider.nights.assess.findings import FINDING_COLUMNS
from airflow_provider.nights.assess.tables import ParquetTable, has_pyarrow
from airflow_provider.nights.evidence.erasing import Erasure
from airflow_provider.nights.evidence.holds import place_hold, release_holds
from airflow_provider.nights.evidence.verifier import CHANGED
from airflow_provider.storage.jsonl import to_line
from airflow_provider.storage.names import digest, to_bytes
from tests.nights.evidence import erasable
from tests.nights.evidence.erasable import KilledError, Tree, read_plainly
from tests.support.nights import Nights, decision, finding

TARGETS = [
    "file:///docs/Anna & <b>Söhne</b>, 'plan'.pdf",
    "file:///docs/the contract of anna.",
    'file:///docs/anna\n{"source": "x"}.pdf',
    "file:///docs/anna\udcff.pdf",
    f"file:///docs/{'long ' * 49}anna.pdf",
    "file:///docs/50%25 anna.pdf",
    "file:///docs/Anna Jose\u0301.pdf",
    "s3://bucket/anna &amp; \\u00e9.pdf",
    "file:///docs/=cmd|'anna'!A1",
    "file:///docs/\u202eanna\x00.pdf",
    "https://example.org/anna?page=1&x=<y>",
]
# What is like it, but another document.
SIMILAR = [
    lambda name: f"{name}.bak",
    lambda name: name.replace("docs", "other"),
    lambda name: name.replace("anna", "Anna ").replace("Anna &", "anna &"),
    lambda name: unicodedata.normalize("NFC", name) + "\u0301",
    lambda name: quote(to_bytes(name), safe=":/"),
    lambda name: html.escape(name) + ";",
    lambda name: json.dumps(name)[1:-1] + "\\",
    lambda name: "file:///docs/bert.pdf",
]
# What the tree has beside its nights, and what goes wrong.
EVENTS = st.sets(
    st.sampled_from(
        [
            "part",
            "killed",
            "refused",
            "held-before",
            "open-night",
            "warnings",
            "list",
            "decisions",
            "restored",
            "left-over",
        ]
    )
)
STEPS = ("_render_again", "_write_table", "_update_entries", "_mark_salts", "_remove_lists", "_remove_parts")
FOREIGN = {
    "notes.txt": "Anna said so.",
    "dt=2026-03-01/export.jsonl": json.dumps({"source": TARGETS[0]}) + "\n",
    "exports/night=1/a.parquet": "not ours",
    "findings/mine.parquet": "not ours, either",
    "dt=2026-03-01/report.html": f"<p>{TARGETS[0]}</p>",
    "dt=2026-03-01/_assess/d/csv.csv": f"source\n{TARGETS[0]}\n",
}


@given(
    target=st.sampled_from(TARGETS),
    others=st.lists(st.sampled_from(SIMILAR), min_size=1, max_size=4, unique=True),
    events=EVENTS,
    step=st.sampled_from(STEPS),
    nights=st.integers(1, 2),
    place=st.integers(0, 3),
)
@settings(
    max_examples=30,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink a tree takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_erased_document_is_nowhere_and_all_else_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    others: list[Callable[[str], str]],
    events: set[str],
    step: str,
    nights: int,
    place: int,
) -> None:
    similar = [name for name in dict.fromkeys(make(target) for make in others) if name != target]
    similar = similar or ["file:///docs/bert.pdf"]
    secrets = {target: "Anna has left"} | {name: f"About {n} others" for n, name in enumerate(similar)}
    monkeypatch.setattr(erasable, "SECRET", secrets)
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Nights(f"file://{folder}/out/", Path(folder) / "in"))
        sources = [*similar[:place], target, *similar[place:]]
        for day in range(1, nights + 1):
            outputs = tree.write_night(day, *sources)
            if has_pyarrow():
                write_parquet(tree, day, sources)
            if "warnings" in events:
                outputs["assessed"]["warnings"] = [f"It has another text than experts decided on: {target}."]
            if "decisions" in events:
                outputs["reviewed"] = [decision(source) for source in sources]
            tree.nights.close(day, **outputs)
        tree.close(5, *similar)  # it has vanished
        pending = tree.write_night(6, *sources) if "open-night" in events else None
        if "held-before" in events:
            place_hold(tree.root, target, "A lawsuit", "the lawyer")
            release_holds(tree.root, target, "Settled", "the lawyer")
        if "list" in events:
            (tree.path / "dt=2026-03-01/_work/ingest/d").mkdir(parents=True)
            journal = to_line({"source": target, "uuid": "u"}) + to_line({"source": similar[0], "uuid": "v"})
            (tree.path / "dt=2026-03-01/_work/ingest/d/journal-1.jsonl").write_bytes(journal)
        part = tree.path / f"dt=2026-03-01/.{'1' * 16}.part"
        if "part" in events:
            part.write_text("Anna has left")
        if "left-over" in events:  # by a cleared task: no row names it any more
            (tree.path / f"dt=2026-03-01/text-{digest(target)}-{'0' * 12}.txt").write_text("Anna has left")
        for name, text in FOREIGN.items():
            (tree.path / name).parent.mkdir(parents=True, exist_ok=True)
            (tree.path / name).write_text(text)
        before = {name: list(about(tree, name, secrets)) for name in similar}
        foreign = {name: (tree.path / name).read_bytes() for name in FOREIGN}
        files = {path: path.read_bytes() for path in tree._files()}
        if "refused" in events:
            tree.refused = {job[1] for job in tree.erasure(target).find().jobs}
        if "killed" in events:
            with mock.patch.object(Erasure, step, kill), pytest.raises(KilledError):
                tree.erase(target)

        erasure = tree.erasure(target, resume="killed" in events)
        erasure.run(tree)
        assert bool(erasure.left) == ("part" in events)
        assert {job[1] for job in erasure.jobs_left} == tree.refused
        if "restored" in events:
            for path in (path for path in files if not path.is_relative_to(tree.path / "_evidence")):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(files[path])
            assert {CHANGED} & {kind for check in tree.verify() for kind in check.counts}
            tree.erase(target)
        if "part" in events:
            os.utime(part, (0, 0))
            again = tree.erasure(target)
            again.run(tree)
            assert again.left == []

        assert {name: (tree.path / name).read_bytes() for name in FOREIGN} == foreign
        for name in FOREIGN:
            (tree.path / name).unlink()
        assert list(about(tree, target, secrets)) == []
        assert find_hashes(tree, target, files) == []
        assert {name: list(about(tree, name, secrets)) for name in similar} == before
        assert set(tree.statuses().split()) == {"ERASED", "OK"}
        tree.close(7, *similar)
        if pending:
            tree.nights.close(6, **pending)
        assert set(tree.statuses().split()) == {"ERASED", "OK"}


def kill(*_: Any) -> None:
    raise KilledError


def write_parquet(tree: Tree, day: int, sources: list[str]) -> None:
    table = ParquetTable(tree.root / f"findings/night=2026-03-{day:02}/{'ab' * 6}.parquet")
    rows = [finding(source, "C-1", rationale=erasable.SECRET[source]) for source in sources]
    table.add([dict.fromkeys(FINDING_COLUMNS) | row for row in rows])
    table.publish()


def about(tree: Tree, source: str, secrets: Mapping[str, str]) -> Iterator[str]:
    """Yield lines of tables, texts and results about a document, and all other objects that name it."""
    forms = spell(source) | {secrets[source]}
    # What names of others have of it, in any form, says nothing about it.
    longer = {form for other in secrets if other != source for form in spell(other)}
    shadows = sorted((one for one in longer if any(form in one for form in forms)), key=len, reverse=True)
    shadow = re.compile("|".join(map(re.escape, shadows)) or "(?!)")
    is_target = source in TARGETS
    for path in tree._files():
        name, text = str(path.relative_to(tree.path)), read_plainly(path)
        lines = text.splitlines() if path.suffix in (".jsonl", ".gz", ".csv", ".parquet") else [text]
        for line in lines:
            if path.suffix == ".html" and not is_target:  # rendered again
                is_about = secrets[source] in line
            elif path.suffix == ".parquet" and not (is_target or line.startswith("{")):
                is_about = False  # bytes of several rows
            else:
                left = shadow.sub("", line)
                is_about = any(form in left for form in forms)
            if is_about:
                yield f"{name}: {'' if path.suffix == '.html' else line}"


def spell(source: str) -> set[str]:
    """Return how an address may be written."""
    plain = to_bytes(source)
    forms = {source, json.dumps(source)[1:-1], json.dumps(source, ensure_ascii=False)[1:-1]}
    forms |= {
        html.escape(source),
        str(escape(source)),
        quote(plain),
        quote(plain, safe=""),
        quote(plain, safe=":/"),
    }
    forms |= {plain.decode(errors=how) for how in ("replace", "backslashreplace")}
    forms |= {source.encode(errors="backslashreplace").decode()}
    return {to_bytes(form).decode("utf-8", "replace") for form in forms}


def find_hashes(tree: Tree, source: str, before: Mapping[Path, bytes]) -> list[str]:
    """Return the objects with an unsalted hash of a document's keys, or of objects as they were with it."""
    keys = [
        to_bytes(key) for key in (source, f"{source}\n7", json.dumps([source]), source.rpartition("/")[2])
    ]
    salted = ("/_night/report-", ".salts", "/_holds/")
    gone = [
        content
        for path, content in before.items()
        if not (path.exists() and path.read_bytes() == content)
        and not any(one in str(path) for one in salted)
    ]
    gone += [gzip.decompress(one) for one in gone if one.startswith(b"\x1f\x8b")]
    hashes = {hashlib.sha256(one).hexdigest() for one in (*keys, *gone)}
    hashes |= {
        hashlib.blake2b(one, digest_size=size).hexdigest() for one in (*keys, *gone) for size in (8, 32)
    }
    wanted = re.compile("|".join(one[:12] for one in hashes))
    found = []
    for path in tree._files():
        text = f"{path.relative_to(tree.path)}\n{read_plainly(path)}"
        sums = text.splitlines()[-1] if "/_nights/" in str(path) else ""
        keyed = {f"{crc32(key):08x}" for key in keys}
        if wanted.search(text) or any(sums[start : start + 8] in keyed for start in range(0, len(sums), 8)):
            found.append(str(path.relative_to(tree.path)))
    return found
