"""Write parameters and the hook's methods in docs/reference.md: `python docs/parameters.py`."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "reference.md"
END = "<!-- The rest is written by docs/parameters.py. -->\n"
# By the page that describes them.
NAMES = {
    "night.md#a-night-in-one-call": ["night.compliance_night"],
    "night.md": ["operators.night.ComplianceCloseNightOperator"],
    "bulk.md": ["operators.ingest.ComplianceIngestOperator", "operators.assess.ComplianceAssessOperator"],
    "bulk.md#shards-with-dynamic-task-mapping": ["operators.ingest.chunk"],
    "review.md#review-a-whole-night": ["operators.feedback.group_findings"],
    "review.md": [
        "operators.feedback.ComplianceReviewAssessmentOperator",
        "operators.feedback.ComplianceSubmitFeedbackOperator",
    ],
    "erasure.md": ["operators.erase.ComplianceEraseOperator"],
    "drift.md": [
        "operators.judge.ComplianceJudgeOperator",
        "triggers.framework.ComplianceFrameworkChangeTrigger",
    ],
    "dag.md": [
        "operators.content.ComplianceSubmitFileOperator",
        "operators.content.ComplianceSubmitUrlOperator",
        "operators.content.ComplianceRefreshContentOperator",
        "operators.content.ComplianceCancelContentOperator",
        "sensors.content.ComplianceContentSensor",
        "transfers.content_to_object_storage.ComplianceContentToObjectStorageOperator",
        "operators.assessment.ComplianceSubmitAssessmentOperator",
        "operators.assessment.ComplianceGetAssessmentResultsOperator",
        "operators.assessment.ComplianceCancelAssessmentOperator",
        "sensors.assessment.ComplianceAssessmentSensor",
        "operators.framework.ComplianceListFrameworksOperator",
        "operators.framework.ComplianceListCriteriaOperator",
    ],
}
NOT_CALLED = ("get_connection_form_widgets", "get_ui_field_behaviour")  # by DAGs


def parameters_of(kind: Any) -> dict[str, str]:
    """Return what the docstring says about each parameter."""
    text = " ".join((inspect.getdoc(kind) or "").split())
    return dict(re.findall(r":param (\w+): (.*?)(?= :param|$)", text))


def default_of(kind: Any, name: str) -> str:
    """Return the default of a parameter as it is shown, of a class or one of its bases."""
    functions = [vars(base).get("__init__") for base in kind.__mro__] if inspect.isclass(kind) else [kind]
    for function in functions:
        found = inspect.signature(function).parameters.get(name) if inspect.isfunction(function) else None
        if found and found.default is found.empty and found.kind is not found.VAR_KEYWORD:
            return "required"
        if found:
            return "" if found.default in (None, found.empty) else f"`{found.default!r}`"
    return ""


def row(kind: Any, name: str, said: str) -> str:
    """Return the row of a parameter."""
    star = " *" if name in getattr(kind, "template_fields", ()) else ""
    default = "configuration" if "Airflow's configuration" in said else default_of(kind, name)
    return f"| `{name}`{star} | {default} | {said} |"


def signatures() -> str:
    """Return the methods of the hook, as one reads them."""
    hook = import_module("airflow_provider.hooks.compliance").ComplianceHook
    lines = []
    for name, method in vars(hook).items():
        if callable(method) and not name.startswith("_") and name not in NOT_CALLED:
            signature = re.sub(r"self(, )?|/, ", "", str(inspect.signature(method)), count=2)
            signature = re.sub(r"""(?<=[:>] )(["'])(.*?)\1""", r"\2", signature)  # annotations are texts
            lines += [f"{name}{signature}", f"    {(inspect.getdoc(method) or '').partition(chr(10))[0]}"]
    return "\n".join(lines)


def render() -> str:
    """Return the table of all parameters, and the methods of the hook."""
    kinds = {
        (guide, *name.rpartition(".")[::2]): getattr(
            import_module(f"airflow_provider.{name.rpartition('.')[0]}"), name.rpartition(".")[2]
        )
        for guide, names in NAMES.items()
        for name in names
    }
    owners: dict[tuple[str, str], list[Any]] = {}  # by name and explanation
    for kind in kinds.values():
        for name, said in parameters_of(kind).items():
            if default_of(kind, name) != "required":
                owners.setdefault((name, said), []).append(kind)
    shared = {each: many for each, many in owners.items() if len(many) > 1}
    lines = ["| parameter | default | |", "|---|---|---|"]
    for (name, said), many in sorted(shared.items(), key=lambda each: (each[0][0], -len(each[1]))):
        is_special = len(many) < max(len(found) for (other, _), found in shared.items() if other == name)
        note = f" ({', '.join(kind.__name__ for kind in many)})" if is_special else ""
        lines.append(row(many[0], name, said + note))
    for (guide, module, title), kind in kinds.items():
        own = parameters_of(kind)
        also = ", ".join(f"`{name}`" for name, said in own.items() if (name, said) in shared)
        link = guide if "#" in guide else f"{guide}#{title.lower()}"
        lines.append(
            f"| **[{title}]({link})** | | in `airflow_provider.{module}`{f'; also {also}' if also else ''} |"
        )
        lines += [row(kind, name, said) for name, said in own.items() if (name, said) not in shared]
    table = re.sub(r"\|  \|", "| |", "\n".join(lines))
    return f"{table}\n\n## Methods of ComplianceHook\n\n```text\n{signatures()}\n```\n"


if __name__ == "__main__":
    page = PAGE.read_text().partition(END)[0]
    PAGE.write_text(f"{page}{END}\n{render()}")
