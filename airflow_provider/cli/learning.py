"""The meaning of a service's words and fields, learned from its answers; without I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import unquote

from airflow_provider.client.findings import normalize, parse_id
from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.client.profile import LISTS, Profile, look_up
from airflow_provider.client.responses import error_message
from airflow_provider.client.settings import Endpoints
from airflow_provider.exceptions import ComplianceProtocolError
from airflow_provider.nights.severity import CATEGORIES

MAX_DEPTH = 3
WORD = re.compile(r"[^\W\d_][^\W\d_ -]*([ _-][^\W\d_]+){0,3}")  # never an id or a token
PART = re.compile(rf"({WORD.pattern}|v[0-9]+|{{assessment_id}})?")  # for a path
# Names that services use, in the order of preference; case and separators do not count.
NAMES = {
    "uuid": "uuid id jobid contentid documentid processingid requestid ticketid ticket number no key",
    "assessmentId": "assessmentid uuid id evaluationid analysisid requestid ticketid ticket number no key",
    "status": "status state phase stage jobstatus jobstate zustand",
    "codeName": "codename code shortname abbreviation slug key identifier",
    "name": "name title label fullname",
    "id": "id uuid frameworkid key number",
    "criteria": "criteria rules controls requirements articles checks items",
    "category": "category outcome verdict rating mark grade conclusion compliance result assessment status",
    "rationale": "rationale comment explanation justification reasoning reason remark note details text",
    "criterionCodeName": "criterioncodename criterion rule control requirement article check code ref name",
    "assessmentResponseId": "assessmentresponseid responseid findingid id number no",
    "message": "message detail title description text reason error",
}
IDS = ("uuid", "assessmentId", "id")
SAME = {"assessmentId": ("uuid", "id")}  # names that the client reads as well
# The fields to learn from the response of an operation: from its record, or from the first one of its list.
LEARNED = {
    "submit_file": ("uuid", "status"),
    "get_status": ("status",),
    "get_statuses": ("uuid", "status"),
    "list_frameworks": ("id", "codeName", "name", "criteria"),
    "submit_assessment": ("assessmentId", "status"),
    "get_assessment": ("status",),
}
# Where services have their assessments, if not where the connection says; below the submit for the others.
SUBMITS = ("assessment", "assess", "assessments/submit", "evaluations", "compliance-assessments", "analyses")
BELOW = {
    "assessment_status": ("/status", "", "/state"),
    "assessment_results": ("/results", "/result", "/report", "/findings", ""),
    "assessment_cancel": ("",),
}
MEANINGS = {
    "status": {
        "PENDING": "pending queued waiting created submitted accepted new received scheduled",
        "RUNNING": "running processing inprogress working started active busy",
        "COMPLETED": "completed complete done finished succeeded success successful ready processed",
        "FAILED": "failed failure error rejected broken aborted",
        "CANCELLED": "cancelled canceled deleted stopped",
    },
    "category": {one.name: one.synonyms for one in CATEGORIES if one.synonyms},
}


@dataclass(frozen=True)
class Answer:
    """The service's answer to a request."""

    operation: str
    method: str
    response: HttpResponse
    seconds: float

    @property
    def label(self) -> str:
        """Status and time, for people."""
        return f"{self.response.status} in {1000 * self.seconds:.0f} ms"


def read_json(response: HttpResponse) -> Any:
    """Return the JSON of an answer as the service sent it; None if it is not JSON."""
    try:
        return response.as_sent.json()
    except ComplianceProtocolError:
        return None


class Learned:
    """Extras of a connection that grow with each answer.

    :param profile: the profile of the connection
    :param endpoints: the endpoints of the connection
    """

    def __init__(self, profile: Profile, endpoints: Endpoints) -> None:
        self.fields: dict[str, list[str]] = {name: list(sources) for name, sources in profile.fields}
        self.words: dict[str, dict[str, str]] = {kind: {} for kind in MEANINGS}
        for kind, word, meaning in profile.words:
            self.words[kind][word] = meaning
        self.lists: list[str] = list(profile.lists)
        self.paths: dict[str, str] = asdict(endpoints)

    @property
    def extras(self) -> dict[str, Any]:
        """The extras `endpoints` and `profile`, without empty and default values."""
        fields = {name: names[0] if len(names) == 1 else names for name, names in self.fields.items()}
        usual = asdict(Endpoints())
        paths = {name: path for name, path in self.paths.items() if path != usual[name]}
        profile = _without_empty({"fields": fields, **self.words, "lists": self.lists})
        return _without_empty({"endpoints": paths, "profile": profile})

    @property
    def profile(self) -> Profile:
        """The profile so far."""
        return Profile.parse(self.extras.get("profile", {}))

    def learn(self, operation: str, response: HttpResponse, ids: Collection[str]) -> None:
        """Learn from an answer.

        :param ids: values that the id in it is likely to have
        """
        value, names = read_json(response), LEARNED.get(operation, ())
        if response.status >= 400:
            if not error_message(replace(response, convert=self.profile.convert)):
                self._find("message", value)
            return
        if operation in LISTS and isinstance(self.profile.unwrap(operation, value), dict):
            self.lists += [path for path, item in _leaves(value) if _is_table(item)][:1]
        record, likely = self.record(operation, value), [one for one in ids if not WORD.fullmatch(one)]
        for name in names:
            self._find(name, record, likely if name in IDS else ())
        if "status" in names:
            self.learn_word("status", self.word(record))
        for criterion in self._look_up("criteria", record) or () if "criteria" in names else ():
            self._find("codeName", criterion)
            self._find("name", criterion)

    def record(self, operation: str, value: Any) -> Any:
        """Return the record in the JSON of an answer, or the first one of its list, as it was sent.

        The wrapper of a list is not a record, even if the list is empty.
        """
        items = self.profile.unwrap(operation, value)
        if operation not in LISTS:
            return items
        return items[0] if isinstance(items, list) and items else None

    def learn_word(self, kind: str, word: str, meaning: str = "") -> str:
        """Return the meaning of a word in the profile, API specification or common use; else `meaning`."""
        of_contract = word.upper() if word.upper() in MEANINGS[kind] else ""
        known = self.words[kind].get(word.casefold()) or of_contract
        found = known or _meaning_of(kind, word) or meaning
        if not known and found and WORD.fullmatch(word):
            self.words[kind][word.casefold()] = found
        return found

    def learn_findings(self, results: Any, criteria: Collection[str]) -> list[str]:
        """Find the findings in results; return words of categories whose meaning is not known.

        :param criteria: code names and names of the criteria that were assessed
        """
        tables = [(path, item) for path, item in [("", results), *_leaves(results)] if _is_table(item)]
        path, table = max(tables, key=lambda found: len(found[1]), default=("", list[Any]([{}])))
        if path not in ("", "results", *self.fields.get("results", ())):
            self.fields.setdefault("results", []).append(path)
        first = table[0]
        well_known = [str(value) for _, value in _leaves(first) if _meaning_of("category", value)]
        self._find("assessmentResponseId", first)
        self._find("criterionCodeName", first, criteria)
        self._find("rationale", first)
        self._find("category", first, well_known)
        words = {str(word).strip() for item in table if (word := self._look_up("category", item))}
        return sorted(word for word in words if not self.learn_word("category", word))

    def learn_path(self, endpoint: str, path: str, identifier: str) -> None:
        """Take the path of a Location that has the id and is otherwise made of words."""
        parts = ["{assessment_id}" if unquote(part) == identifier else part for part in path.split("/")]
        if "{assessment_id}" in parts and all(map(PART.fullmatch, parts)):
            self.paths[endpoint] = "/".join(parts)

    def paths_of(self, endpoint: str) -> list[str]:
        """Return where an endpoint may be, the likeliest path first."""
        submit, known = self.paths["assessment_submit"], self.paths[endpoint]
        usual = [f"{submit}/{{assessment_id}}{end}" for end in BELOW.get(endpoint, ())]
        if endpoint == "assessment_submit":
            usual = [f"{submit.rpartition('/')[0]}/{path}" for path in SUBMITS]
        return list(dict.fromkeys([known, *usual]))

    def place(self, name: str, record: Any) -> str:
        """Return where a field of the contract is in a record, if that is known; else an empty string."""
        names = (name, *SAME.get(name, ()))
        paths: list[str] = [path for known in names for path in (*self.fields.get(known, ()), known)]
        is_object = isinstance(record, dict)
        return next((path for path in paths if is_object and _accepts(name, look_up(record, path))), "")

    def word(self, record: Any) -> str:
        """Return the service's word for the status of a record; nothing if it is neither known nor a word."""
        word = str(self._look_up("status", record) or "").strip()
        return word if WORD.fullmatch(word) or word.casefold() in self.words["status"] else ""

    def _look_up(self, name: str, record: Any) -> Any:
        path = self.place(name, record)
        return look_up(record, path) if path else None

    def _find(self, name: str, record: Any, likely: Collection[str] = ()) -> None:
        """Find a field that is not known yet: by a value that it is likely to have, or by its name."""
        if self.place(name, record):
            return
        found = [(path, str(value)) for path, value in _leaves(record) if _accepts(name, value)]
        paths = [path for path, value in found if value in likely]
        for candidate in NAMES[name].split():
            paths += [path for path, _ in found if normalize(path.rpartition(".")[2]) == candidate]
        if paths:
            self.fields.setdefault(name, []).append(paths[0])


def _meaning_of(kind: str, word: object) -> str | None:
    """Return the word of the contract for a well-known word of `status` or `category`."""
    found = (meaning for meaning, words in MEANINGS[kind].items() if normalize(str(word)) in words.split())
    return next(found, None)


def _leaves(value: Any, depth: int = MAX_DEPTH, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of every field, including nested objects."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield f"{path}{name}", item
            if depth and "." not in name:
                yield from _leaves(item, depth - 1, f"{path}{name}.")


def _accepts(name: str, value: Any) -> bool:
    """Return whether a field may have a value."""
    if name == "criteria":
        return _is_table(value)
    if name == "assessmentResponseId":
        return parse_id(value) is not None
    is_number = name in (*IDS, "status") and isinstance(value, int) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and bool(value.strip()))


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _without_empty(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in entries.items() if entry}
