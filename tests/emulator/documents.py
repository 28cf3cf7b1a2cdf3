"""Small documents for tests; the emulator writes them for its samples too."""

from airflow_provider.emulator.documents import W, make_docx, make_pdf

__all__ = ["W", "make_docx", "make_pdf"]
