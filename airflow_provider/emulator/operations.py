"""The operations of the service: their names in faults and counters, and where they live."""

from __future__ import annotations

CONTENT = "/api/v1/content-processing"
FRAMEWORKS = "/api/v1/frameworks"
# The contract gives no paths for application info and assessments: these are the defaults of the provider.
ASSESSMENTS = "/api/v1/assessments"

OPERATIONS: dict[str, tuple[str, str]] = {
    "submit_file": ("POST", f"{CONTENT}/file"),
    "submit_url": ("POST", f"{CONTENT}/url"),
    "get_status": ("GET", f"{CONTENT}/{{uuid}}/status"),
    "get_statuses": ("POST", f"{CONTENT}/status/batch"),
    "get_content": ("GET", f"{CONTENT}/{{uuid}}/content"),
    "cancel": ("DELETE", f"{CONTENT}/{{uuid}}"),
    "refresh": ("POST", f"{CONTENT}/{{uuid}}/refresh"),
    "list_frameworks": ("GET", FRAMEWORKS),
    "list_criteria": ("GET", f"{FRAMEWORKS}/{{framework_id}}/criteria"),
    "submit_feedback": ("POST", "/api/v1/assessmentFeedback"),
    "get_application_info": ("GET", "/api/v1/info"),
    "submit_assessment": ("POST", ASSESSMENTS),
    "get_assessment": ("GET", f"{ASSESSMENTS}/{{assessment_id}}/status"),
    "get_assessment_results": ("GET", f"{ASSESSMENTS}/{{assessment_id}}/results"),
    "cancel_assessment": ("DELETE", f"{ASSESSMENTS}/{{assessment_id}}"),
}

# Where the provider's connection says other paths, and so does an emulator that is to be found there.
ENDPOINTS = {
    "application_info": "get_application_info",
    "assessment_submit": "submit_assessment",
    "assessment_status": "get_assessment",
    "assessment_results": "get_assessment_results",
    "assessment_cancel": "cancel_assessment",
}

REALM = "/realms/partners"
TOKEN_PATH = f"{REALM}/protocol/openid-connect/token"
JWKS_PATH = f"{REALM}/protocol/openid-connect/certs"

# The token endpoint counts as two operations, so that a test can break one grant and not the other.
LOGIN, REFRESH_TOKEN, JWKS, OTHER = "login", "refresh_token", "jwks", "other"
NAMES = (*OPERATIONS, LOGIN, REFRESH_TOKEN, JWKS, OTHER)
