"""What a running task has of Airflow."""
