"""Take documents out of a report that is stored: rows that name them go, counts stay."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection

from airflow_provider.nights.reports.page import limit_source, render_names, split_source

LINE = re.compile(r"<(div|li)>(?:(?!<(?:div|li|tr)\b).)*?</\1>", re.DOTALL)  # may be inside of a row
ROW = re.compile(r"<(tr|li)\b.*?</\1>", re.DOTALL)
MATRIX = re.compile(r'(<script type="application/json" id="verdicts">)(.*?)(?=</script>)', re.DOTALL)
ERASED = {"tr": "<tr><td>(erased)</td></tr>", "li": "<li>(erased)</li>", "div": "<div>(erased)</div>"}
GONE = "<!DOCTYPE html>\n<title>Erased</title>\n<p>This report named a document that was erased.</p>\n"
MARK = "(erased)"


def cut(page: str, sources: Collection[str]) -> str:
    """Return a page without documents; a page that shows them elsewhere than in rows is replaced as a whole.

    A row is about a document if it shows it as templates do, with its folder. Others may have the same name.
    """
    given = {*sources, *map(limit_source, sources)}
    shown = {name for source in given for name in render_names(source)}
    page = MATRIX.sub(lambda found: found[1] + _cut_matrix(found[2], sources), page)
    for part in (LINE, ROW):
        page = part.sub(lambda row: ERASED[row[1]] if any(name in row[0] for name in shown) else row[0], page)
    page = _quoted(sources).sub(MARK, page)
    return GONE if any(name in page for name in shown) else page


def _quoted(sources: Collection[str]) -> re.Pattern[str]:
    """Return what finds documents in messages: their whole addresses, and names in quotes."""
    forms = []
    for source in sources:
        name, address = (re.escape(_escape(text)) for text in (source.rstrip("/").rpartition("/")[2], source))
        forms += [rf"(?<={quote}){name}(?={quote})" for quote in ("&#39;", "&#34;") if name]
        forms.append(rf"(?<![\w%-]){address}(?![\w.%/-])")
    return re.compile("|".join(forms) or "(?!)")


def _escape(text: str) -> str:
    """Return a text as Jinja escapes it."""
    return html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def _cut_matrix(script: str, sources: Collection[str]) -> str:
    matrix = json.loads(script)
    shown = {split_source(source)[:2] for source in sources}
    gone = {number for number, names in enumerate(matrix["documents"]) if tuple(names) in shown}
    if not gone:
        return script
    for number in gone:
        matrix["documents"][number] = ["", MARK]
        for framework in matrix["frameworks"]:
            framework["rows"][number] = ""
    matrix["notes"] = {
        place: note for place, note in matrix["notes"].items() if int(place.partition("/")[0]) not in gone
    }
    text = json.dumps(matrix, separators=(",", ":"))
    return re.sub("[<>&']", lambda found: f"\\u{ord(found[0]):04x}", text)  # can't end the script
