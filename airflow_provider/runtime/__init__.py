"""Airflow around a running task."""
