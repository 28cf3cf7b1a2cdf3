"""The command line: `python -m airflow_provider`, and `airflow compliance` where Airflow takes commands."""
