"""Links of tasks: to a job at the service, to a report, to the pages inside Airflow."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom, conf

from airflow_provider.provider_info import PAGES_PREFIX
from airflow_provider.runtime.compat import HAS_FORMS
from airflow_provider.runtime.params import read_option

if TYPE_CHECKING:
    from airflow_provider.storage.locations import Location

log = logging.getLogger(__name__)


JOB_URL = "compliance_job_url"
REPORT_URL = "compliance_report_url"
REPORT_KEY = "compliance_report"  # XCom: the URI of the report of a task instance


class PushedLink(BaseOperatorLink):
    """Links to the URL that the task pushed to XCom as `xcom_key`."""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the URL, or an empty string."""
        key = getattr(ti_key, "key", ti_key)
        return str(XCom.get_value(ti_key=key, key=self.xcom_key) or "")


class ComplianceJobLink(PushedLink):
    """Links to the job or assessment, if the connection has the extra (`assessment_`)`console_url`."""

    name = "View job"
    xcom_key = JOB_URL  # pushed before the task defers, so the link shows at once


class ComplianceReportLink(PushedLink):
    """Links to the report of an ingestion."""

    name = "View report"
    xcom_key = REPORT_URL


def push_report(ti: Any, report: Location) -> str:
    """Let Airflow's pages find a report, and link to it; return where to find it, for people."""
    ti.xcom_push(key=REPORT_KEY, value=report.uri)
    # Even an empty link: Airflow logs an error for a link whose XCom is missing.
    page = page_of("reports", ti.dag_id, ti.run_id, ti.task_id, str(ti.map_index))
    link = _configured_link(report) or page
    ti.xcom_push(key=REPORT_URL, value=link)
    return _absolute(link) or str(report)


def forms_url(ti: Any) -> str:
    """Return where Airflow shows the forms of a run that wait for an answer; empty before Airflow 3.1."""
    path = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    run = f"{path}/dags/{quote(ti.dag_id, safe='')}/runs/{quote(ti.run_id, safe='')}"
    return _absolute(f"{run}/required_actions?response_received=false") if HAS_FORMS else ""


def _absolute(link: str) -> str:
    """Return the URL of a page of Airflow; empty if it is not known where Airflow is."""
    url = urljoin(conf.get("api", "base_url", fallback="") or "", link)
    return url if link and urlsplit(url).netloc else ""


def page_of(*parts: str) -> str:
    """Return the path of one of the pages inside Airflow; empty before Airflow 3.1, which has none."""
    base = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return "/".join([f"{base}{PAGES_PREFIX}", *(quote(part, safe="") for part in parts)]) if HAS_FORMS else ""


def _configured_link(report: Location) -> str:
    """Return where a browser finds a report, by the option `report_urls`; empty if that is unknown."""
    setting = read_option("report_urls") or "{}"
    try:
        urls = {str(prefix).rstrip("/") + "/": str(url) for prefix, url in json.loads(setting).items()}
    except (ValueError, AttributeError):
        log.warning("No link to the report: [compliance] report_urls is not a JSON object.")
        return ""
    prefix = max((place for place in urls if report.uri.startswith(place)), key=len, default="")
    if not urls.get(prefix, "").startswith(("http://", "https://")):
        return ""
    # A plus sign in the name of a run would be read as a blank.
    return f"{urls[prefix].rstrip('/')}/{quote(report.uri.removeprefix(prefix), safe='/=')}"
