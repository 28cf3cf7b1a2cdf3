"""Bulk ingestion: sources, steps, unchanged documents, resume, manifest."""
