"""Apache Airflow provider for a document-compliance service."""

__version__ = "0.2.0"
