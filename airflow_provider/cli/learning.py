"""What a service means by its words and fields, found out from its answers; without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

from airflow_provider.client.profile import Profile, look_up
from airflow_provider.client.settings import Endpoints

MAX_DEPTH = 3
WORD = re.compile(r"[^\W\d_][^\W\d_ -]*([ _-][^\W\d_]+){0,3}")  # never an id or a token
# Names that services use, in the order of preference; case and separators do not count.
NAMES = {
    "uuid": "uuid id jobid contentid documentid processingid requestid ticketid ticket number no key",
    "assessmentId": "assessmentid uuid id evaluationid analysisid requestid ticketid ticket number no key",
    "status": "status state phase stage jobstatus jobstate progress zustand",
    "error": "error reason failure errormessage message",
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
    "category": {
        "SUFFICIENTLY_REGULATED": "sufficientlyregulated sufficient compliant ok passed met fulfilled",
        "NOT_SUFFICIENTLY_REGULATED": "notsufficientlyregulated insufficient partial partly partlymet",
        "MISSING": "missing absent notfound",
    },
}


def normalize(text: object) -> str:
    """Return letters and digits in lower case."""
    return re.sub(r"[\W_]", "", str(text).casefold())


def meaning_of(kind: str, word: object) -> str | None:
    """Return the word of the contract for a word of `status` or `category` that is well known."""
    found = (meaning for meaning, words in MEANINGS[kind].items() if normalize(word) in words.split())
    return next(found, None)


def leaves(value: Any, depth: int = MAX_DEPTH, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of every field, those of objects in objects included."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield f"{path}{name}", item
            if depth and "." not in name:
                yield from leaves(item, depth - 1, f"{path}{name}.")


def is_id(value: Any) -> bool:
    """Return whether a value may be an id."""
    return isinstance(value, int | str) and not isinstance(value, bool) and bool(str(value).strip())


def is_text(value: Any) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str) and bool(value.strip())


def is_table(value: Any) -> bool:
    """Return whether a value is a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


class Learned:
    """Extras of a connection that grow with each answer.

    :param profile: of the connection
    :param endpoints: of the connection
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
        """The extras `endpoints` and `profile`, without what is empty or the default."""
        fields = {name: names[0] if len(names) == 1 else names for name, names in self.fields.items()}
        profile = _without_empty({"fields": fields, **self.words, "lists": self.lists})
        usual = asdict(Endpoints())
        paths = {name: path for name, path in self.paths.items() if path != usual[name]}
        return _without_empty({"endpoints": paths, "profile": profile})

    @property
    def profile(self) -> Profile:
        """The profile so far."""
        return Profile.parse(self.extras.get("profile", {}))

    def paths_of(self, endpoint: str) -> list[str]:
        """Return where an endpoint may be, the likeliest path first."""
        submit, known = self.paths["assessment_submit"], self.paths[endpoint]
        if endpoint == "assessment_submit":
            return list(dict.fromkeys([known, *(f"{submit.rpartition('/')[0]}/{path}" for path in SUBMITS)]))
        below = (f"{submit}/{{assessment_id}}{end}" for end in BELOW[endpoint])
        return list(dict.fromkeys([known, *below]))

    def learn_path(self, endpoint: str, path: str, identifier: str) -> None:
        """Take the path of a Location that has the id and is otherwise made of words."""
        parts = path.split("/")
        words = [part for part in parts if part and unquote(part) != identifier]
        is_plain = all(WORD.fullmatch(part) or (part[:1] == "v" and part[1:].isdigit()) for part in words)
        if identifier in map(unquote, parts) and is_plain:
            named = ("{assessment_id}" if unquote(part) == identifier else part for part in parts)
            self.paths[endpoint] = "/".join(named)

    def get(self, record: Any, name: str) -> Any:
        """Return a field of a record as the contract names it, as far as it is known."""
        converted = self.profile.convert(record)
        return converted.get(name) if isinstance(converted, dict) else None

    def learn_field(
        self, name: str, record: Any, accept: Callable[[Any], bool], prefer: Sequence[object] = ()
    ) -> str:
        """Find a field of a record, if it is not known yet; return where it is, or an empty string.

        :param accept: whether a value may be that of the field
        :param prefer: values that it is likely to have
        """
        known = (*self.fields.get(name, ()), name)  # in the order in which they are converted
        found = [(path, value) for path, value in leaves(record) if accept(value)]
        for path in known:
            if isinstance(record, dict) and accept(look_up(record, path)):
                return str(path)
        liked = {str(value) for value in prefer}
        for path, value in sorted(found, key=lambda leaf: str(leaf[1]) not in liked):
            if str(value) in liked:
                return self._add(name, path)
        for candidate in NAMES[name].split():
            for path, _ in found:
                if normalize(path.rpartition(".")[2]) == candidate:
                    return self._add(name, path)
        return ""

    def learn_word(self, kind: str, word: object, meaning: str | None = None) -> str | None:
        """Return what a word means, if that is known or well known; it is then a part of the profile."""
        text = str(word).strip()
        own = self.words[kind].get(text.casefold())
        if text.upper() in MEANINGS[kind] and not own:
            return text.upper()
        found = meaning or own or meaning_of(kind, text)
        if found and WORD.fullmatch(text):
            self.words[kind][text.casefold()] = found
        return found

    def learn_list(self, value: Any) -> bool:
        """Find the field in which a list is wrapped; return whether there is one."""
        path = next((path for path, item in leaves(value) if is_table(item)), "")
        if path and path not in self.lists:
            self.lists.append(path)
        return bool(path)

    def learn_findings(self, results: Any, criteria: Sequence[str]) -> list[str]:
        """Find the findings in results; return words of categories whose meaning is not known.

        :param criteria: code names and names of the criteria that were assessed
        """
        tables = [("", results), *leaves(results)]
        path, table = max(
            ((path, item) for path, item in tables if is_table(item)),
            key=lambda found: len(found[1]),
            default=("", []),
        )
        if not table:
            return []
        if path and path != "results":
            self._add("results", path)
        first = table[0]
        self.learn_field("assessmentResponseId", first, lambda value: is_id(value) and str(value).isdigit())
        self.learn_field("criterionCodeName", first, is_text, criteria)
        self.learn_field("rationale", first, is_text)
        known = [path for path, value in leaves(first) if is_text(value) and meaning_of("category", value)]
        path = self.learn_field("category", first, is_text, [look_up(first, path) for path in known])
        words = {word for item in table if is_text(word := look_up(item, path))}
        return sorted(word for word in words if self.learn_word("category", word) is None)

    def _add(self, name: str, path: str) -> str:
        if path != name and path not in self.fields.setdefault(name, []):
            self.fields[name].append(path)
        if not self.fields.get(name):
            self.fields.pop(name, None)
        return path


def _without_empty(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in entries.items() if entry}
