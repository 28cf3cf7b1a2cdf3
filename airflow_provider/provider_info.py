"""The metadata that Airflow reads without importing any class of this provider."""

from __future__ import annotations

from typing import Any

PACKAGE = "airflow-provider-compliance"
INTEGRATION = "Document compliance"
OBJECT_STORAGE = "Object storage"  # any store that Airflow's ObjectStoragePath knows
DOCUMENTATION = "https://airflow-provider-compliance.example.com/"
HOOK_CLASS = "airflow_provider.hooks.compliance.ComplianceHook"
HOOK_NAME = "Document compliance"
CONNECTION_TYPE = "compliance"

# Every extra of the connection that the hook reads, in one table for both kinds of connection form:
# `conn-fields` (Airflow 3.2 and newer) and the hook's widgets (older).
CONNECTION_FIELDS: dict[str, dict[str, Any]] = {
    "token_url": {
        "label": "Token URL",
        "description": "Token endpoint of the identity provider. Required.",
        "schema": {"type": ["string", "null"], "format": "url"},
    },
    "client_id": {
        "label": "Client ID",
        "description": "Registered client identifier. Required.",
        "schema": {"type": ["string", "null"]},
    },
    "client_secret": {
        "label": "Client secret",
        "description": "Secret of the client. Required.",
        "schema": {"type": ["string", "null"], "format": "password"},
    },
    "idp_subject": {
        "label": "IDP subject",
        "description": "Sent as IDP_SUBJECT. Leave empty: the gateway sets this header from the token.",
        "schema": {"type": ["string", "null"]},
    },
    "verify": {
        "label": "Verify TLS",
        "description": "true (default), false, or the path of a CA file.",
        "schema": {"type": ["string", "null"]},
    },
    "timeout": {
        "label": "Timeout",
        "description": "Seconds to wait for a connection and between two parts of a response; three times "
        "that for a whole response that is not streamed. Default 60.",
        "schema": {"type": ["number", "null"], "minimum": 0.001},
    },
    "max_retries": {
        "label": "Max retries",
        "description": "How often a request is retried after a transient error. Default 5.",
        "schema": {"type": ["integer", "null"], "minimum": 0},
    },
    "batch_size": {
        "label": "Batch size",
        "description": "Maximum number of jobs in one batch status request. Default 100.",
        "schema": {"type": ["integer", "null"], "minimum": 1},
    },
    "endpoints": {
        "label": "Endpoints",
        "description": "JSON object of paths that the contract leaves open: application_info, "
        "assessment_submit, assessment_status, assessment_results, assessment_cancel.",
        "schema": {"type": ["object", "null"], "format": "json"},
    },
    "console_url": {
        "label": "Console URL",
        "description": "Page of a job, such as https://console.example.com/jobs/{uuid}. Tasks link to it.",
        "schema": {"type": ["string", "null"]},
    },
    "assessment_console_url": {
        "label": "Assessment console URL",
        "description": "Page of an assessment, such as "
        "https://console.example.com/assessments/{assessment_id}. Tasks link to it.",
        "schema": {"type": ["string", "null"]},
    },
    "allow_http": {
        "label": "Allow HTTP",
        "description": "Allow http:// to hosts other than localhost. Credentials travel unencrypted.",
        "schema": {"type": ["boolean", "null"]},
    },
}

HIDDEN_FIELDS = ["schema"]
RELABELING = {"host": "Base URL", "login": "User name", "password": "Password"}
PLACEHOLDERS = {
    "host": "https://api.example.com",
    "port": "443",
    "token_url": "https://id.example.com/realms/partners/protocol/openid-connect/token",
    "verify": "true",
    "timeout": "60",
    "max_retries": "5",
    "batch_size": "100",
}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, the target of the entry point `apache_airflow_provider`."""
    return {
        "package-name": PACKAGE,
        "name": "Document compliance",
        "description": "Extract texts from documents and web pages, assess them against compliance "
        "frameworks, and send expert feedback.",
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "external-doc-url": DOCUMENTATION,
                "how-to-guide": ["/docs/quickstart.md", "/docs/operators.md"],
                "tags": ["service"],
            },
            {
                "integration-name": OBJECT_STORAGE,
                "external-doc-url": DOCUMENTATION,
                "how-to-guide": ["/docs/storage.md"],
                "tags": ["protocol"],
            },
        ],
        "hooks": [{"integration-name": INTEGRATION, "python-modules": ["airflow_provider.hooks.compliance"]}],
        "operators": [
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.operators.assessment"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.operators.content"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.operators.feedback"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.operators.framework"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.operators.ingest"]},
        ],
        "sensors": [
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.sensors.assessment"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.sensors.content"]},
        ],
        "triggers": [
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.triggers.assessment"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.triggers.content"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.triggers.framework"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.triggers.ingest"]},
            {"integration-name": INTEGRATION, "python-modules": ["airflow_provider.triggers.review"]},
        ],
        "transfers": [
            {
                "source-integration-name": INTEGRATION,
                "target-integration-name": OBJECT_STORAGE,
                "how-to-guide": "/docs/storage.md",
                "python-module": "airflow_provider.transfers.content_to_object_storage",
            }
        ],
        "extra-links": [
            "airflow_provider.operators.base.ComplianceJobLink",
            "airflow_provider.operators.base.ComplianceReportLink",
        ],
        "connection-types": [
            {
                "connection-type": CONNECTION_TYPE,
                "hook-class-name": HOOK_CLASS,
                "hook-name": HOOK_NAME,
                "ui-field-behaviour": {
                    "hidden-fields": HIDDEN_FIELDS,
                    "relabeling": RELABELING,
                    "placeholders": PLACEHOLDERS,
                },
                "conn-fields": CONNECTION_FIELDS,
            }
        ],
    }
