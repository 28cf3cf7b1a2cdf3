"""A Python client of the service; it never imports airflow."""
