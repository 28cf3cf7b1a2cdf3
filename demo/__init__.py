"""The provider on one machine: `make demo` for bulk ingestion, `make ui` for all example DAGs."""
