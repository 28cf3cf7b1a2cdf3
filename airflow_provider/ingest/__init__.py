"""What an ingest run leaves behind; nothing here imports airflow."""
