"""HTML pages that summarize a run."""
