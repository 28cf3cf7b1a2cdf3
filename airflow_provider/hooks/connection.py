"""Parse an Airflow connection; the widgets of its form before Airflow 3.2."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

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
from airflow_provider.runtime.params import read_option

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

    def extra(key: str) -> Any:
        if (value := extras.get(key)) in (None, ""):
            return _read_option(key) if key in CONFIG_OPTIONS else None
        try:
            return _parse(key, value)
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
    given = {key: extra(key) for key in CONNECTION_FIELDS}
    return Settings(
        base_url=_base_url(conn, name),
        username=conn.login or "",
        password=SecretStr(conn.password or ""),
        name=name,
        **{key: value for key, value in given.items() if value is not None},  # else the setting's default
    )


def _parse(key: str, value: Any) -> Any:
    """Parse an extra, by its own parser or by the type that the form has."""
    kind = CONNECTION_FIELDS[key]["schema"]["type"][0]
    return PARSERS[key if key in PARSERS else kind](value)


def _read_option(name: str) -> Any:
    """Read a default of the connection from the configuration of Airflow."""
    if not (value := read_option(name)):
        return None
    try:
        return _parse(name, value)
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


def _parse_location(value: Any) -> str:
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


# Parsers of extras by the type of their field, and of extras that need more.
PARSERS: dict[str, Callable[[Any], Any]] = {
    "string": str,
    "number": float,
    "integer": int,
    "boolean": _parse_bool,
    "token_url": lambda value: str(value).strip(),
    "client_secret": lambda value: SecretStr(str(value)),
    "grant_type": lambda value: str(value).strip().lower(),
    "verify": _parse_bool_or_path,
    "endpoints": lambda value: Endpoints.parse(_parse_json(value)),
    "profile": lambda value: Profile.parse(_parse_json(value)),
    "assessment_payload": lambda value: json.dumps(_parse_json(value)),
    "state_path": _parse_location,
}


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
