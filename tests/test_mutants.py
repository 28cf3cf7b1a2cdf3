"""The mistakes that `make mutants` makes."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from mutants.__main__ import names_in
from mutants.mutations import mutants_of, mutated
from mutants.targets import TARGETS, nearest_tests

ROOT = Path(__file__).parent.parent


def mistakes(source: str) -> list[str]:
    """Return the source with each mistake."""
    return [ast.unparse(mutated(source, each)) for each in mutants_of("m", source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a == b != c", ["x = a != b != c", "x = a == b == c"]),
        ("x = a and b", ["x = a or b"]),
        ("x = not a", ["x = a"]),
        ("if a:\n    f()", ["if not a:\n    f()", "if a:\n    pass"]),
        ("x = a + 2", ["x = a - 2", "x = a + 3"]),
        ("x += a", ["x -= a"]),
        ("x = True", ["x = False"]),
        ("x = 'ab'", ["x = 'abab'"]),
        ("x = min(a)", ["x = max(a)"]),
        ("a.b = c", ["pass"]),
        ("try:\n    f()\nexcept E:\n    g()", [
            "try:\n    pass\nexcept E:\n    g()",
            "try:\n    f()\nexcept ():\n    g()",
            "try:\n    f()\nexcept E:\n    pass",
        ]),
        ("def f(a=1):\n    return a", ["def f(a=2):\n    return a", "def f(a=1):\n    return None"]),
        ("raise MyError(f'{a} is wrong', 'so')", ["pass"]),
    ],
)  # fmt: skip
def test_one_thing_at_a_time_is_made_wrong(source: str, expected: list[str]) -> None:
    assert mistakes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        'class A(B):\n    """A docstring."""\n    a: int | None',
        '@cache(1)\ndef f(a: "B" | None) -> "C":\n    """A docstring."""',
        "log.info('hello %s', 1)",
        "T = TypeVar('T')",
        "if TYPE_CHECKING:\n    f(1)",
        "__all__ = ['a']",
    ],
)
def test_texts_and_types_are_not_mutated(source: str) -> None:
    assert mistakes(source) == []


def test_mutants_are_named_after_their_place_and_told_apart() -> None:
    names = [each.name for each in mutants_of("m", "class A:\n    def f(self):\n        g(a < b, a < b)")]
    assert names == ["A.f: g(a < b, a < b) -> pass", "A.f: a < b -> a <= b", "A.f: a < b -> a <= b #2"]


def test_a_mistake_in_a_pattern_is_on_the_lines_of_its_case() -> None:
    """Else the tests that come to the case before would be run."""
    source = "match a:\n    case 'x':\n        return f()\n    case 'y' if b < c:\n        return g()"
    found = {each.name: each.lines for each in mutants_of("m", source)}
    assert found[": 'x' -> 'xxx'"] == range(2, 3)
    assert found[": 'y' -> 'yyy'"] == range(4, 5)
    assert found[": b < c -> b <= c"] == range(4, 5)
    assert found[": return g() -> return None"] == range(5, 6)


def test_the_results_of_a_run_tell_what_to_run_again(tmp_path: Path) -> None:
    file = tmp_path / "m.txt"
    file.write_text(
        "killed       1.0 s  m:1 f: a -> b\n"
        "timed out   20.0 s  m:2 f: b -> c s  d\n"
        "survived     1.0 s  m:3 : 1 -> 2\n"
        "unclear     20.0 s  m:4 f: d -> e\n"
    )
    assert names_in(file, "survived", "unclear") == {": 1 -> 2", "f: d -> e"}
    assert names_in(file, "killed", "timed out") == {"f: a -> b", "f: b -> c s  d"}


@pytest.mark.parametrize("module", TARGETS)
def test_targets_and_their_tests_exist(module: str) -> None:
    assert all((ROOT / each).exists() for each in nearest_tests(module))
    source = (ROOT / "airflow_provider" / f"{module}.py").read_text()
    named = {each.name for each in mutants_of(module, source)}
    known = tomllib.loads((ROOT / "mutants/equivalent.toml").read_text()).get(module, {})
    assert set(known) <= named
