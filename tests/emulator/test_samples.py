from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pypdfium2
import pytest

from airflow_provider.emulator.extraction import ExtractionError, extract_docx, extract_html, extract_pdf
from airflow_provider.emulator.samples import CLAUSES, main, write_samples
from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider.emulator.samples import Sample


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample]:
    return write_samples(tmp_path, pdfs=12, docx=8, pages=8)


def of_kind(samples: list[Sample], kind: str) -> list[Sample]:
    return [sample for sample in samples if sample.kind == kind]


def test_the_text_of_each_sample_comes_out_of_it_again(samples: list[Sample]) -> None:
    for sample in samples:
        data = sample.path.read_bytes()
        match sample.kind:
            case "pdf":
                text = extract_pdf(io.BytesIO(data))
            case "docx":
                text = extract_docx(io.BytesIO(data))
            case _:
                text = extract_html(data)
        assert text == sample.text
        assert any(topic in text for topic in CLAUSES)


def test_the_pdfs_open_with_their_pages_and_every_line_inside_the_margins(samples: list[Sample]) -> None:
    for sample in of_kind(samples, "pdf"):
        document = pypdfium2.PdfDocument(sample.path.read_bytes())
        try:
            assert len(document) == sample.pages
            for number in range(len(document)):
                page = document[number]
                objects: list[Any] = list(page.get_objects())
                # The second name is that of pypdfium2 4.
                boxes = [(getattr(item, "get_bounds", None) or item.get_pos)() for item in objects]
                assert all(left >= 71 and right <= 595 - 36 for left, _, right, _ in boxes)
                assert all(bottom >= 36 and top <= 842 - 36 for _, bottom, _, top in boxes)
                page.close()
        finally:
            document.close()


def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(tmp_path: Path) -> None:
    def read(name: str, seed: int) -> dict[str, bytes]:
        made = write_samples(tmp_path / name, pdfs=3, docx=2, pages=2, broken=3, seed=seed)
        return {sample.path.name: sample.path.read_bytes() for sample in made}

    first = read("a", 1)
    assert first == read("b", 1)
    assert set(first.values()).isdisjoint(set(read("c", 2).values()) - {b""})


def test_broken_samples_fail_as_such_documents_do(tmp_path: Path, raw: Raw) -> None:
    docx, text, empty = write_samples(tmp_path, pdfs=0, docx=0, pages=0, broken=3)

    with pytest.raises(ExtractionError, match="The DOCX document is damaged"):
        extract_docx(io.BytesIO(docx.path.read_bytes()))
    uuids = [raw.submit(sample.path.read_bytes(), sample.path.name) for sample in (docx, text)]
    found = {record["uuid"]: record["error"] for record in raw.batch(*uuids)}
    errors = [found[uuid] for uuid in uuids]
    assert "The DOCX document is damaged" in errors[0]
    assert "damaged or not a PDF" in errors[1]
    files = {"file": (empty.path.name, empty.path.read_bytes())}
    assert raw.post(f"{CONTENT}/file", files=files).status_code == 400


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made"

    assert main([str(folder), "--pdfs", "2", "--docx", "1", "--pages", "1", "--broken", "1"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["pdf", "pdf", "docx", "page", "broken"]
    assert {line.split()[-1] for line in lines} == {str(path) for path in folder.iterdir()}
    assert main([str(next(folder.iterdir()))]) == 1
    assert "exists" in capsys.readouterr().err.lower()


def test_the_samples_need_only_the_standard_library(tmp_path: Path) -> None:
    probe = (
        "import sys; from airflow_provider.emulator.samples import main; main([sys.argv[1]]); "
        "print({name.partition('.')[0] for name in sys.modules} & {'airflow', 'aiohttp', 'pypdfium2'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"
