"""The connection form's extra fields as widgets, for Airflow before 3.2."""

from __future__ import annotations

from typing import Any

from airflow_provider.provider_info import CONNECTION_FIELDS


def widgets() -> dict[str, Any]:
    """Make a widget of each entry of the one table of fields."""
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
