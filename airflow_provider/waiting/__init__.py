"""Waiting for jobs and assessments: one poller, in the triggerer or in a worker."""
