"""Values that many tests need."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from pydantic import SecretStr

from airflow_provider.client.settings import Settings

PASSWORD = "pa55-w0rd/+& ü"
CLIENT_SECRET = "c1ient-s3cret"
UUID = "3f0c2f5e-1c1b-4f59-9c39-5a3a63a1b9a1"
CONTENT = "/api/v1/content-processing"
PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n%%EOF\n"


def docx(member: str = "word/document.xml") -> bytes:
    """Make the smallest thing that is a DOCX by its bytes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(member, "<document/>")
    return target.getvalue()


def settings_for(url: str, **changes: Any) -> Settings:
    """Settings with the shortest pauses."""
    values: dict[str, Any] = {
        "base_url": url,
        "token_url": f"{url}/token",
        "username": "alice",
        "password": SecretStr(PASSWORD),
        "client_id": "partner",
        "client_secret": SecretStr(CLIENT_SECRET),
        "timeout": 60.0,
        "backoff": 0.001,
        "name": "the Airflow connection 'compliance_default'",
    }
    return Settings(**{**values, **changes})
