"""Apache Airflow provider for a document-compliance service."""

__version__ = "0.1.0"
