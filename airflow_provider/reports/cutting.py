"""Take documents out of a report that is stored: rows that name them go, counts stay."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection
from urllib.parse import quote

from airflow_provider.reports.page import split_source

ROW = re.compile(r"<(tr|li)\b.*?</\1>", re.DOTALL)
MATRIX = re.compile(r'(<script type="application/json" id="verdicts">)(.*?)(?=</script>)', re.DOTALL)
LIMITS = (110, 160, 300)  # of sources, as templates show them
MIN_NAME_CHARS = 5  # shorter names may be anything, such as a number
ERASED = {"tr": "<tr><td>(erased)</td></tr>", "li": "<li>(erased)</li>"}
GONE = "<!DOCTYPE html>\n<title>Erased</title>\n<p>This report named a document that was erased.</p>\n"


def cut(page: str, sources: Collection[str]) -> str:
    """Return a page without documents; a page that names them in another way is replaced as a whole."""
    pattern = name_pattern(sources)
    if not pattern.search(page):
        return page
    page = MATRIX.sub(lambda found: found[1] + _cut_matrix(found[2], sources), page)
    page = ROW.sub(lambda row: ERASED[row[1]] if pattern.search(row[0]) else row[0], page)
    return GONE if pattern.search(page) else page


def name_pattern(sources: Collection[str]) -> re.Pattern[str]:
    """Return what finds the names of documents, however they are escaped."""
    names = set(sources)
    for source in sources:
        names |= {
            source.rstrip("/").rpartition("/")[2],
            *(split_source(source, limit)[1] for limit in LIMITS),
        }
    forms = {form for name in names if len(name) >= MIN_NAME_CHARS for form in _forms(name)}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile(rf"(?<![\w.%-])(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?![\w-])")


def _forms(name: str) -> set[str]:
    """Return a name as HTML, addresses, JSON and scripts have it."""
    escaped = html.escape(name)
    addresses = {quote(name, safe, errors="replace") for safe in ("/", "")}
    as_jinja = escaped.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    return {name, escaped, as_jinja, json.dumps(name)[1:-1], _to_script(name)[1:-1], *addresses}


def _cut_matrix(script: str, sources: Collection[str]) -> str:
    matrix = json.loads(script)
    shown = {split_source(source)[:2] for source in sources}
    gone = {number for number, names in enumerate(matrix["documents"]) if tuple(names) in shown}
    for number in gone:
        matrix["documents"][number] = ["", "(erased)"]
        for framework in matrix["frameworks"]:
            framework["rows"][number] = ""
    matrix["notes"] = {
        place: note for place, note in matrix["notes"].items() if int(place.partition("/")[0]) not in gone
    }
    return _to_script(matrix)


def _to_script(value: object) -> str:
    """Return JSON that can't end a script."""
    text = json.dumps(value, separators=(",", ":"))
    return (
        text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("'", "\\u0027")
    )
