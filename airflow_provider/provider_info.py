"""The metadata that Airflow reads without importing any class of this provider."""

from __future__ import annotations

from typing import Any

PACKAGE = "airflow-provider-compliance"
INTEGRATION = "Document compliance"
OBJECT_STORAGE = "Object storage"  # any store that Airflow's ObjectStoragePath knows
HOOK_CLASS = "airflow_provider.hooks.compliance.ComplianceHook"
HOOK_NAME = "Document compliance"
CONNECTION_TYPE = "compliance"
PAGES_PREFIX = "/compliance"  # for the URLs of the pages inside Airflow


def _field(label: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


# Every extra of the connection that the hook reads, in one table for both kinds of connection form:
# `conn-fields` (Airflow 3.2 and newer) and the hook's widgets (older).
CONNECTION_FIELDS: dict[str, dict[str, Any]] = {
    "token_url": _field("Token URL", "Token endpoint of the identity provider. Required.", format="url"),
    "client_id": _field("Client ID", "Registered client identifier. Required."),
    "client_secret": _field("Client secret", "Secret of the client. Required.", format="password"),
    "grant_type": _field(
        "Grant type", "password (default), or client_credentials: then login and password are not used."
    ),
    "idp_subject": _field(
        "IDP subject", "Sent as IDP_SUBJECT. Leave empty: the gateway sets this header from the token."
    ),
    "verify": _field("Verify TLS", "true (default), false, or the path of a CA file."),
    "timeout": _field(
        "Timeout",
        "Seconds to wait for a connection and between two parts of a response; three times "
        "that for a whole response that is not streamed. Default 60.",
        "number",
        minimum=0.001,
    ),
    "max_retries": _field(
        "Max retries",
        "How often a request is retried after a transient error. Default 5.",
        "integer",
        minimum=0,
    ),
    "batch_size": _field(
        "Batch size", "Maximum number of jobs in one batch status request. Default 100.", "integer", minimum=1
    ),
    "endpoints": _field(
        "Endpoints",
        "JSON object of paths that the API specification leaves open: application_info, "
        "assessment_submit, assessment_status, assessment_results, assessment_cancel.",
        "object",
        format="json",
    ),
    "profile": _field(
        "Profile",
        "JSON object that maps words and fields of the service to those of the API specification, such as "
        '{"fields": {"uuid": "jobId"}, "status": {"done": "COMPLETED"}}.',
        "object",
        format="json",
    ),
    "console_url": _field(
        "Console URL", "Page of a job, such as https://console.example.com/jobs/{uuid}. Tasks link to it."
    ),
    "assessment_console_url": _field(
        "Assessment console URL",
        "Page of an assessment, such as "
        "https://console.example.com/assessments/{assessment_id}. Tasks link to it.",
    ),
    "assessment_payload": _field(
        "Assessment payload",
        "JSON that bulk assessments send for each document and framework, such as "
        '{"contentUuid": "{document[uuid]}", "framework": "{framework[codeName]}"}.',
    ),
    "state_path": _field(
        "State path",
        "A URI or an absolute path, such as s3://conn_id@bucket/state/: where tasks remember their jobs "
        "between attempts. Default: [compliance] state_path, else Airflow's task state store.",
    ),
    "share_tokens": _field(
        "Share tokens",
        "true or false: whether all processes of a host share one login, in an encrypted file. Default: "
        "[compliance] share_tokens, else false.",
        "boolean",
    ),
    "max_in_flight": _field(
        "Max in flight",
        "A whole number of at least 1: how many jobs a bulk operator may have at the service at a time. "
        "Default: no limit.",
        "integer",
        minimum=1,
    ),
    "allow_http": _field(
        "Allow HTTP",
        "Allow http:// to hosts other than localhost. Credentials travel unencrypted.",
        "boolean",
    ),
}


def _option(
    description: str, example: str | None = None, kind: str = "string", default: str = ""
) -> dict[str, Any]:
    known = {"description": description, "type": kind, "example": example, "default": default}
    return {"version_added": "0.2.0", **known}


CONFIG_SECTION = "compliance"
CONFIG_OPTIONS = {
    "concurrency": _option(
        "Maximum number of requests that a bulk operator or a transfer has in flight, unless its own "
        "parameter sets it.",
        kind="integer",
        default="16",
    ),
    "give_up_after": _option(
        "After how many nights in a row of failures a document is no longer sent; 0 is never.",
        kind="integer",
        default="7",
    ),
    "state_path": _option(
        "Where tasks remember their jobs between attempts, in object storage, unless the connection or the "
        "operator's destination sets it.",
        "s3://conn_id@bucket/state/",
    ),
    "roots": _option(
        "Roots of nights that the pages in Airflow show even if no result of a closing task names them, as a "
        "JSON list. Others are found without this option.",
        '["s3://my_aws@compliance/nights/"]',
    ),
    "report_urls": _option(
        "Where a browser finds reports: a JSON object of prefixes in object storage, each with its URL. "
        "Tasks link to their report if a prefix matches; the longest one counts.",
        '{"s3://my_aws@compliance/": "https://compliance.example.com/"}',
    ),
    "timestamp_url": _option(
        "Address of an RFC 3161 authority, which signs the hash of the record of every closed night. If it "
        "does not answer, the night is closed without.",
        "https://timestamps.example.com/",
    ),
    "share_tokens": _option(
        "Let all processes of a host share one login, unless the connection sets it.",
        kind="boolean",
        default="False",
    ),
}

HIDDEN_FIELDS = ["schema"]
RELABELING = {"host": "Base URL", "login": "User name", "password": "Password"}
PLACEHOLDERS = {
    "host": "https://api.example.com",
    "port": "443",
    "token_url": "https://id.example.com/realms/partners/protocol/openid-connect/token",
    "grant_type": "password",
    "verify": "true",
    "timeout": "60",
    "max_retries": "5",
    "batch_size": "100",
}


def _modules(package: str, *names: str) -> list[dict[str, Any]]:
    modules = [f"airflow_provider.{package}.{name}" for name in names]
    return [{"integration-name": INTEGRATION, "python-modules": modules}]


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
                "how-to-guide": ["/docs/quickstart.md", "/docs/reference.md"],
                "tags": ["service"],
            },
            {
                "integration-name": OBJECT_STORAGE,
                "how-to-guide": ["/docs/dag.md"],
                "tags": ["protocol"],
            },
        ],
        "hooks": _modules("hooks", "compliance"),
        "operators": _modules(
            "operators",
            "assess",
            "assessment",
            "content",
            "erase",
            "feedback",
            "framework",
            "ingest",
            "judge",
            "night",
        ),
        "sensors": _modules("sensors", "assessment", "content"),
        "triggers": _modules("triggers", "assessment", "content", "framework", "review"),
        "transfers": [
            {
                "source-integration-name": INTEGRATION,
                "target-integration-name": OBJECT_STORAGE,
                "how-to-guide": "/docs/dag.md",
                "python-module": "airflow_provider.transfers.content_to_object_storage",
            }
        ],
        "config": {
            CONFIG_SECTION: {
                "description": "Defaults of the document-compliance provider.",
                "options": CONFIG_OPTIONS,
            }
        },
        "notifications": ["airflow_provider.notifications.ComplianceProgressNotifier"],
        "cli": ["airflow_provider.cli.commands.get_commands"],
        "extra-links": [
            "airflow_provider.operators.links.ComplianceJobLink",
            "airflow_provider.operators.links.ComplianceReportLink",
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
