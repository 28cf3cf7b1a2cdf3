"""The nightly job end to end on one machine: `make demo`, and `make ui` to look at it in Airflow."""
