"""Pages inside Airflow: closed nights, their reports, and one document over all nights."""
