"""x."""
def get_provider_info(): return {"package-name": "airflow-provider-compliance"}
