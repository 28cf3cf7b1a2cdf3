"""Parse an Airflow connection; the widgets of its form before Airflow 3.2."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any, TypeVar

from airflow.providers.common.compat.sdk import conf
from pydantic import SecretStr

from airflow_provider.client.profile import Profile
from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.exceptions import ComplianceConfigError
from airflow_provider.provider_info import (
    CONFIG_OPTIONS,
    CONFIG_SECTION,
    CONNECTION_FIELDS,
    CONNECTION_TYPE,
)

T = TypeVar("T")
log = logging.getLogger(__name__)


def parse_settings(conn: Any, name: str = "") -> Settings:
    """Parse the settings of an Airflow connection.

    :param conn: the connection; from the form, JSON, or a URI, where every extra is a string
    :param name: what errors call the connection, instead of its id
    """
    extras = conn.extra_dejson
    name = name or f"the Airflow connection '{conn.conn_id}'"
    if unknown := sorted(set(extras) - set(CONNECTION_FIELDS)):
        log.warning("Unknown extras of %s are ignored: %s.", name, ", ".join(unknown))

    def extra(key: str, parse: Callable[[Any], T], default: T) -> T:
        if (value := extras.get(key)) in (None, ""):
            return default
        try:
            return parse(value)
        except (ValueError, TypeError, OverflowError):
            raise ComplianceConfigError(
                f"The extra '{key}' of {name} has an invalid value. Expected: "
                f"{CONNECTION_FIELDS[key]['description']}"
            ) from None

    for key in ("token_url", "client_id", "client_secret"):
        if not extras.get(key):
            note = type_note(conn, name)
            raise ComplianceConfigError(
                f"{note}{' ' if note else ''}The extra '{key}' of {name} is missing: set it in the field "
                f"'{CONNECTION_FIELDS[key]['label']}' of the connection form, or in its JSON or URI."
            )
    verify: bool | str = True
    return Settings(
        base_url=_base_url(conn, name),
        token_url=str(extras["token_url"]).strip(),
        username=conn.login or "",
        password=SecretStr(conn.password or ""),
        client_id=str(extras["client_id"]),
        client_secret=SecretStr(str(extras["client_secret"])),
        grant_type=extra("grant_type", _parse_word, Settings.grant_type),
        idp_subject=extra("idp_subject", str, None),
        verify=extra("verify", _parse_bool_or_path, verify),
        timeout=extra("timeout", float, Settings.timeout),
        max_retries=extra("max_retries", int, Settings.max_retries),
        batch_size=extra("batch_size", int, Settings.batch_size),
        endpoints=extra("endpoints", lambda value: Endpoints.parse(_parse_json(value)), Endpoints()),
        profile=extra("profile", lambda value: Profile.parse(_parse_json(value)), Profile()),
        console_url=extra("console_url", str, None),
        assessment_console_url=extra("assessment_console_url", str, None),
        assessment_payload=extra("assessment_payload", lambda value: json.dumps(_parse_json(value)), None),
        state_path=extra("state_path", _parse_location, _read_option("state_path", _parse_location, None)),
        share_tokens=extra("share_tokens", _parse_bool, _read_option("share_tokens", _parse_bool, False)),
        max_in_flight=extra("max_in_flight", int, None),
        allow_http=extra("allow_http", _parse_bool, False),
        name=name,
    )


def _read_option(name: str, parse: Callable[[str], T], default: T) -> T:
    """Read a default of the connection from the configuration of Airflow."""
    if not (value := conf.get(CONFIG_SECTION, name, fallback=None)):
        return default
    try:
        return parse(value)
    except (ValueError, TypeError):
        raise ComplianceConfigError(
            f"The option '{name}' in the section [{CONFIG_SECTION}] of the Airflow configuration is "
            f"'{value}', which is invalid. Expected: {CONFIG_OPTIONS[name]['description']}"
        ) from None


def type_note(conn: Any, name: str = "") -> str:
    """Return what to do if the connection is of another type, else an empty string.

    Another type is not an error by itself: a `generic` connection with all settings works.

    :param name: what to call the connection, instead of its id
    """
    if conn.conn_type == CONNECTION_TYPE:
        return ""
    name = name or f"the Airflow connection '{conn.conn_id}'"
    name = name[0].upper() + name[1:]
    if not conn.conn_type:
        return (
            f"{name} has no type: write it as JSON with 'conn_type' '{CONNECTION_TYPE}', or as a URI that "
            f"begins with {CONNECTION_TYPE}://."
        )
    return (
        f"{name} has the type '{conn.conn_type}', not '{CONNECTION_TYPE}': choose another connection, or "
        "correct its type."
    )


def _base_url(conn: Any, name: str) -> str:
    """Join the parts of a URI: in `compliance://https://u@host:8443/prefix` the prefix is the schema."""
    scheme, _, rest = (conn.host or "").strip().rpartition("://")
    if not rest:
        return ""
    prefix = conn.schema or ""
    if prefix in ("http", "https"):  # the scheme, which a full base URL has itself
        scheme, prefix = scheme or prefix, ""
    host, slash, path = rest.partition("/")
    port = re.search(r":(\d+)\s*$", host, re.ASCII)
    if port and conn.port and int(port[1]) != int(conn.port):
        raise ComplianceConfigError(
            f"The base URL of {name} has the port {port[1]}, its field 'Port' has {conn.port}: remove one."
        )
    if conn.port and not port:
        host += f":{conn.port}"
    base = f"{scheme or 'https'}://{host}{slash}{path}".rstrip("/")
    return base + f"/{prefix}".rstrip("/")


def _parse_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _parse_word(value: Any) -> str:
    return str(value).strip().lower()


def _parse_location(value: Any) -> str | None:
    if "://" not in (location := str(value)) and not location.startswith("/"):
        raise ValueError
    return location


def _parse_bool(value: Any) -> bool:
    parsed = _parse_bool_or_path(value)
    if isinstance(parsed, str):
        raise TypeError
    return parsed


def _parse_bool_or_path(value: Any) -> bool | str:
    if isinstance(value, bool):
        return value
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return values.get(str(value).strip().lower(), str(value))


def form_widgets() -> dict[str, Any]:
    """Return the widgets of the extra fields of the connection form, for Airflow before 3.2."""
    from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
    from flask_babel import lazy_gettext
    from wtforms import BooleanField, IntegerField, PasswordField, StringField
    from wtforms.validators import Optional

    def widget(field: dict[str, Any]) -> Any:
        schema = field["schema"]
        label, text = lazy_gettext(field["label"]), field["description"]
        match schema["type"][0], schema.get("format"):
            case "boolean", _:
                return BooleanField(label, description=text)
            case "integer", _:
                return IntegerField(
                    label, description=text, widget=BS3TextFieldWidget(), validators=[Optional()]
                )
            case _, "password":
                return PasswordField(label, description=text, widget=BS3PasswordFieldWidget())
        return StringField(label, description=text, widget=BS3TextFieldWidget())

    return {name: widget(field) for name, field in CONNECTION_FIELDS.items()}
