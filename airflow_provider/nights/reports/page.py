"""Render HTML pages from templates, without scripts and with nothing to load, and format their values."""

from __future__ import annotations

import math
import re
import sys
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow_provider import __version__
from airflow_provider.nights.severity import BAD, CATEGORIES, UNKNOWN, classify, normalize_category
from airflow_provider.redaction.text import one_line, plural, redact_text, sanitize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jinja2 import Environment
    from jinja2.bccache import Bucket

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_SOURCE_LENGTH = 2000
MIN_KAPPA_CASES = 20  # from which on a page shows it: below, chance decides
MAX_SOURCE_CHARS = 300  # that are kept of many
SHOWN = sorted(CATEGORIES, key=lambda category: category is UNKNOWN)  # in this order
LEGEND = {category.style: category.words for category in SHOWN}
# Why a verdict is another one than in the previous night.
CAUSES = {
    "framework": "new version of the framework",
    "other": "another criterion of the framework changed",
    "document": "new text",
    "both": "new text; new version of the framework",
    "judge": "the service decides differently on the same text",
}
UNDECIDED = {"none": "open", "expired": "open"}  # decisions that say that no one decided
DECISIONS = {"changed": "overruled", "commented": "commented", "agreed": "confirmed", **UNDECIDED}
DECIDED = ("expert", "expert_category", "expert_rationale", "decided_at", "decision", "outcome")
FEEDBACK = {
    "sent": "sent to the service",
    "recorded": "not sent",
    "uncertain": "perhaps sent",
    "pending": "not sent yet",
}
# States of a verdict that a person was or should be asked about, in the order in which pages show it.
OPEN, OVERRULED = DECISIONS["none"], DECISIONS["changed"]
STATES = (OVERRULED, OPEN, DECISIONS["commented"], DECISIONS["agreed"])
DOCUMENTS = {"completed": "new or changed", "skipped": "unchanged", "failed": "failed"}  # words, by outcome
CELLS = {"assessed": "assessed tonight", "carried": "carried over", "failed": "failed"}
TONES = ("idle", "good", "warn", "bad")  # tones of a page, the worst last

# The CSS classes of bars, in their order.
STYLES = ("plain", "completed", *list(LEGEND)[:-1], "failed", "cancelled", "skipped", UNKNOWN.style)

Segment = tuple[str, int, float, float]
"""A CSS class, the counted noun, and position and size in percent."""

Summary = tuple[str, str, str]
"""A tone, the words for it, and a sentence for the headline; the sentence may be empty."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run that a report is about; times are `datetime` or ISO 8601."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1
    started: datetime | str | None = None
    ended: datetime | str | None = None
    destination: str | None = None
    manifest: str | None = None

    @classmethod
    def of(cls, ti: Any, started: str, **about: Any) -> Run:
        """Return the run of a task instance, which ends now."""
        names = ("dag_id", "task_id", "run_id", "map_index")
        of_task: dict[str, Any] = {name: getattr(ti, name) for name in names}
        return cls(**of_task, started=started, ended=datetime.now(UTC), **about)


def limit_source(source: object, limit: int = MAX_SOURCE_CHARS) -> str:
    """Return a source that is short enough to keep, but not masked: only an unchanged URL becomes a link."""
    return _cut_middle(source if isinstance(source, str) else sanitize(source, limit), limit)


def _cut_middle(text: str, limit: int) -> str:
    """Return a source of at most `limit` characters: its root and its name say the most."""
    tail = limit * 2 // 3
    return text if len(text) <= limit else f"{text[: limit - tail - 1]}…{text[-tail:]}"


def split_source(source: object, limit: int = 160) -> tuple[str, str, str]:
    """Return the folder and the name of a source, and its URL if that is safe to open; else an empty text."""
    text = sanitize(source, MAX_SOURCE_LENGTH)
    short = _cut_middle(text, limit)
    cut = short.rstrip("/").rfind("/") + 1
    return short[:cut], short[cut:], text if text == source and _is_safe_url(text) else ""


def to_query(source: object) -> str:
    """Return the address of a document, relative to a report that names it; empty if it is cut or masked."""
    text = sanitize(source, MAX_SOURCE_CHARS)
    return f"?source={quote(text, safe='')}" if text and text == source and "…" not in text else ""


def _is_safe_url(text: str) -> bool:
    if not re.fullmatch(r"(?i)https?://[^\s\\\"'<>`]+", text) or "…" in text:
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def verdict_words(category: object) -> str:
    """Return the words for a category; one that the contract does not have is shown as it is."""
    found = classify(category)
    return sanitize(category, 60) if found is UNKNOWN else found.words


def standing(row: Mapping[str, Any]) -> str:
    """Return the category that stands: the expert's, if any, otherwise the service's."""
    return normalize_category(row.get("expert_category") or row.get("category"))


def read_decision(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table of decisions with the columns that findings have for those."""
    names = ("source", "framework", "criterion", "decision", "decided_at", "outcome")
    return {
        **{name: row.get(name) for name in names},
        "category": row.get("category_before"),
        "expert_category": row.get("category_after"),
        "expert": row.get("expert_id") or row.get("answered_by") or "no one",
        "expert_rationale": row.get("rational_feedback"),
    }


def describe_cause(row: Mapping[str, Any]) -> str:
    """Return why a verdict changed, and by how much a new text is longer or shorter."""
    cause, change = CAUSES.get(str(row.get("change_reason")), ""), row.get("text_change")
    if not isinstance(change, int | float) or not 0 < abs(change) < math.inf:
        return cause
    size = f"{abs(change):,.0%}".replace("%", "\u00a0%")
    return cause.replace("new text", f"new text, {size} {'shorter' if change < 0 else 'longer'}")


def apply_decision(finding: Mapping[str, Any], made: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a finding with the decision made since its table was written.

    :param made: see `read_decision`; one that is about an earlier verdict is not applied
    """
    if made is None or state_of(made) == OPEN:
        return finding
    if normalize_category(made["category"]) != normalize_category(finding.get("category")):
        return finding
    return {**finding, **{name: made[name] for name in DECIDED}}


def state_of(row: Mapping[str, Any]) -> str:
    """Return what experts made of a verdict; a decision says it itself."""
    if decision := row.get("decision"):
        return DECISIONS.get(str(decision), OPEN)
    if not row.get("expert"):
        return OPEN
    if standing(row) != normalize_category(row.get("category")):
        return OVERRULED
    return DECISIONS["commented" if row.get("expert_rationale") else "agreed"]


def list_counts(counts: Mapping[str, int], words: Mapping[str, str]) -> str:
    """Return the numbers that are not 0, in the order of their words: `3 unchanged, 1 failed`."""
    return ", ".join(f"{counts[kind]:,} {word}" for kind, word in words.items() if counts.get(kind))


def in_order(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers that are not 0, by CSS class, in the order in which they are shown."""
    return {style: counts[style] for style in STYLES if counts.get(style)}


def stack(counts: Mapping[str, int], full: int, minimum: float = 1.0) -> list[Segment]:
    """Return counts as segments, one after the other; `full` is 100 %.

    :param minimum: size in percent of a segment and of the whole, so that a few among many stay visible
    """
    sizes = {style: max(100 * number / full, minimum) for style, number in counts.items() if number}
    length = min(max(100 * sum(counts.values()) / full, minimum), 100.0) if sizes else 0.0
    scale, start = length / (sum(sizes.values()) or 1), 0.0
    segments = []
    for style, size_percent in sizes.items():
        segments.append((style, counts[style], start, size_percent * scale))
        start += size_percent * scale
    return segments


def summarize(parts: Iterable[Summary], otherwise: str) -> Summary:
    """Return the worst tone, of equal ones the first, and all sentences."""
    found = [("idle", "Nothing to do", ""), *parts]
    tone, status, _ = max(found, key=lambda part: TONES.index(part[0]))
    return tone, status, " ".join(sentence for *_, sentence in found if sentence) or otherwise


def percent(part: int, whole: int) -> str:
    """Return a share; only exactly none and all are 0 % and 100 %."""
    share = 100 * part / whole if whole else 0.0
    if part in (0, whole):
        return f"{share:.0f}\u00a0%"
    return "<0.1\u00a0%" if share < 0.1 else f"{min(share, 99.9):.1f}\u00a0%"


def rate(number: int, seconds: float) -> str:
    """Return documents per minute, or per hour if they are few."""
    per_minute = 60 * number / seconds
    few = f"{60 * per_minute:,.0f} documents per hour"
    return few if per_minute < 9.5 else f"{per_minute:,.0f} documents per minute"


def duration(seconds: float, *, exact: bool = False) -> str:
    """Return a duration in at most two units, rounded unless it is `exact`."""
    if exact and seconds < 60:
        return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    parts = [(day, "d"), (hour, "h"), (minute, "min"), (second, "s")]
    first = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number:,} {unit}" for number, unit in parts[first : first + 2] if number)


def size(octets: float, *, exact: bool = False) -> str:
    """Return a size in decimal units, rounded unless it is `exact`."""
    value, unit = float(octets), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    if exact:
        return f"{value:g} {unit}"
    digits = f"{value:.1f}".removesuffix(".0") if value < 9.95 and unit != "B" else f"{value:,.0f}"
    return f"{digits} {unit}"


def moment(timestamp: float, pattern: str = "%-d %b %Y, %H:%M UTC") -> str:
    """Format a Unix timestamp."""
    try:
        return (EPOCH + timedelta(seconds=timestamp)).strftime(pattern)
    except OverflowError:
        return "(out of range)"


def format_time(value: object) -> str:
    """Return a time as people read it."""
    at = read_time(value)
    return sanitize(value or "") if at is None else moment(at)


def read_time(value: object) -> float | None:
    """Return the Unix timestamp of a `datetime` or an ISO 8601 text, by default in UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH).total_seconds()


def read_number(value: object) -> float | None:
    """Return a number from 0 to 2**63, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value <= 2**63 else None


def render(template: str, **context: Any) -> str:
    """Return the HTML of a template; `base.html` says what each page sets."""
    return _environment().get_template(template).render(context)


def render_names(source: str) -> set[str]:
    """Return how pages show a document: with its folder, in all lengths."""
    macros: Any = _environment().get_template("macros.html").module
    return {*(str(macros.link(source, limit)) for limit in (110, 160, 300)), str(macros.document(source))}


@cache
def _environment() -> Environment:
    # Imported here, because DAG files import what imports this.
    from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
    from jinja2 import __version__ as jinja_version

    module = Path(__file__)
    made_by = f"{jinja_version} {__version__} {module.stat().st_mtime_ns}"  # constants went through filters

    class Compiled(FileSystemBytecodeCache):
        """Keeps compiled templates beside the bytecode of this module, if that can be written."""

        def get_source_checksum(self, source: str) -> str:
            return super().get_source_checksum(made_by + source)

        def dump_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):
                super().dump_bytecode(bucket)

    compiled = Compiled(str(Path(cache_from_source(str(module))).parent))
    environment = Environment(
        loader=PackageLoader("airflow_provider.nights.reports"),
        bytecode_cache=None if sys.dont_write_bytecode else compiled,
        autoescape=True,
        finalize=_mask_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name, file in (("css", "report.css"), ("matrix_js", "matrix.js")):
        text = environment.get_template(file).render(categories=CATEGORIES)
        digest = b64encode(sha256(text.encode()).digest()).decode()
        environment.globals.update({name: text, f"{name}_digest": f"sha256-{digest}"})
    environment.globals |= {"legend": LEGEND, "causes": CAUSES, "bad": BAD}
    environment.globals |= {"min_kappa_cases": MIN_KAPPA_CASES}
    environment.globals |= {"outcomes_of_feedback": FEEDBACK, "state_words": {one: one for one in STATES}}
    environment.globals |= {"outcome_words": DOCUMENTS}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    shown = (
        *(classify, duration, format_time, in_order, limit_source, list_counts, moment, percent, plural),
        *(rate, read_number, read_time, sanitize, size, split_source, stack, standing, state_of),
        *(describe_cause, to_query, verdict_words),
    )
    environment.filters.update({function.__name__: function for function in shown})
    environment.filters |= {
        "to_anchor": lambda title: re.sub(r"\W+", "-", sanitize(title, 80)).strip("-").lower(),
        "documents": plural,
        "count": "{:,}".format,
        "total": lambda counts: sum(counts.values()),
    }
    return environment


def _mask_text(value: Any) -> Any:
    """Mask the output of every expression that is not markup, just before it is escaped."""
    return value if hasattr(value, "__html__") else redact_text(one_line(str(value)))
