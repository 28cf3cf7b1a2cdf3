"""`make sbom` lists what our package brings, and refuses licenses that are not allowed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from release import sbom

PACKAGES = {
    "ours": [
        "Provides-Extra: store",
        "Requires-Dist: Direct>=1",
        "Requires-Dist: shop[fast]; extra == 'store'",
    ],
    "direct": ["Requires-Dist: deep", "Requires-Dist: windows-only; sys_platform == 'win32'"],
    "deep": ["Requires-Dist: direct", "Provides-Extra: test", "Requires-Dist: test-tool; extra == 'test'"],
    "shop": ["Provides-Extra: fast", "Requires-Dist: speedup; extra == 'fast'"],
    "speedup": [],
    "test-tool": [],
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some packages, of which one requires others, with the name that the document is about."""
    for name, lines in PACKAGES.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            "\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines])
        )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sbom, "NAME", "ours")
    return tmp_path


def make(target: Path, monkeypatch: pytest.MonkeyPatch, **licences: Any) -> int:
    """Run the command on what cyclonedx-py would say of the environment."""
    components = [
        {
            "name": name,
            "bom-ref": f"{name}==1.0",
            "licenses": licences.get(name, [{"license": {"id": "MIT"}}]),
        }
        for name in PACKAGES
        if name != "ours"
    ]
    edges = [{"ref": "direct==1.0", "dependsOn": ["deep==1.0"]}, {"ref": "test-tool==1.0"}]
    edges.append({"ref": "deep==1.0", "dependsOn": ["direct==1.0", "test-tool==1.0"]})
    root = {"bom-ref": "root", "name": "ours"}
    document = {"metadata": {"component": root}, "components": components, "dependencies": edges}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(document)))
    return sbom.main(target)


def test_it_holds_what_the_package_and_its_extras_bring(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make(installed / "new" / "sbom.json", monkeypatch) == 0

    document = json.loads((installed / "new" / "sbom.json").read_text())
    assert {each["name"] for each in document["components"]} == {"direct", "deep", "shop", "speedup"}
    assert document["metadata"]["component"]["version"] == "1.0"
    assert {"ref": "deep==1.0", "dependsOn": ["direct==1.0"]} in document["dependencies"]
    assert "test-tool" not in json.dumps(document)


@pytest.mark.parametrize(
    "licences",
    [
        [{"license": {"id": "GPL-3.0-only"}}],
        [{"expression": "MIT AND (GPL-3.0-only OR LicenseRef-Own)"}],
        [{"license": {"id": "MIT"}}, {"license": {"name": "License :: Other/Proprietary License"}}],
        [],
    ],
    ids=["another one", "a part of an expression", "one of two", "none"],
)
def test_a_direct_dependency_needs_an_allowed_licence(
    installed: Path,
    licences: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert make(installed / "sbom.json", monkeypatch, shop=licences) == 1
    assert "does not allow:\n  shop " in capsys.readouterr().out


def test_what_comes_with_it_is_shown_only(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make(installed / "sbom.json", monkeypatch, deep=[{"license": {"id": "GPL-3.0-only"}}]) == 0
    assert "GPL-3.0-only" in capsys.readouterr().out


def test_expressions_of_allowed_licences_are_allowed(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        make(installed / "sbom.json", monkeypatch, shop=[{"expression": "(MIT OR Apache-2.0) AND ISC"}]) == 0
    )


def test_a_package_that_says_it_in_words_is_listed_by_hand() -> None:
    assert sbom.licences_of({"name": "In_Words"}, {"in-words": "MIT OR ISC"}) == ["ISC", "MIT"]


def test_an_environment_without_all_extras_is_refused(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / "speedup-1.0.dist-info" / "METADATA").unlink()
    (installed / "speedup-1.0.dist-info").rmdir()

    with pytest.raises(SystemExit, match="speedup is not installed"):
        make(installed / "sbom.json", monkeypatch)
