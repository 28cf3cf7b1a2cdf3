"""One ingest: what to do, the doing of it, and what it leaves behind."""
