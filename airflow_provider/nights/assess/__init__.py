"""Bulk assessment: every document against every framework, with verdicts carried forward."""
