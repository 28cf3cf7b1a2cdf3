"""What tests of pages have in common: hostile texts, and a parser that rejects what a page never has."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

VOID = {"meta", "line", "rect", "br"}
ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</title></style></svg><h1>taken</h1>",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)//http://x",
    'http://a/"onmouseover="alert(1)',
    "https://user:secret@example.org/a.pdf",
    "data:text/html,<script>alert(1)</script>",
    "]]><!--<x>-->&lt;&amp;&#60;",
    "\ud800 half \x00 zero \u202e back \x1b[2J",
    "x" * 100_000,
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=60),
    st.sampled_from(ATTACKS),
    st.datetimes(timezones=st.none() | st.just(UTC)),
    st.datetimes().map(datetime.isoformat),
    st.lists(st.sampled_from(ATTACKS), max_size=2),
)
ODD = VALUES | st.just(10**5000)  # which JSON can't have


class Strict(HTMLParser):
    """Reject what a report never has: unclosed elements, unknown elements and attributes, comments."""

    ELEMENTS = frozenset(
        {"html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "details"}
        | {"p", "h1", "h2", "dl", "dt", "dd", "div", "span", "bdi", "small", "a", "ul", "li", "summary"}
        | {"table", "thead", "tbody", "tr", "th", "td", "svg", "text", "line", "rect", "b", "i", "pre"}
    )
    ATTRIBUTES = frozenset(
        {"lang", "charset", "http-equiv", "content", "name", "class", "href", "rel", "scope", "role"}
        | {
            "aria-hidden",
            "aria-label",
            "tabindex",
            "x",
            "y",
            "x1",
            "x2",
            "y1",
            "y2",
            "rx",
            "width",
            "height",
            "text-anchor",
        }
    )

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.ELEMENTS, tag
        assert {name for name, _ in attrs} <= self.ATTRIBUTES, attrs
        for name, value in attrs:
            if name == "href":
                assert tag == "a"
                assert dict(attrs)["rel"] == "noreferrer noopener"
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def read_text(tree: LexborHTMLParser, selector: str) -> str:
    """Return the text of the first element that a selector finds, with plain spaces."""
    found = tree.css_first(selector)
    assert found is not None, selector
    return " ".join(found.text(separator=" ").split())
