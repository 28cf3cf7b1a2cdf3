"""What a test can see and change of what an emulator holds: jobs, tokens, catalogue, assessments."""

from __future__ import annotations

import copy
from typing import Any

from airflow_provider.emulator.control import Control, on_loop
from airflow_provider.emulator.memory.assessments import Assessment
from airflow_provider.emulator.memory.identity import SCOPE
from airflow_provider.emulator.memory.jobs import Job, Outcome, PlannedFailure


class Controls(Control):
    """The controls of what an emulator holds."""

    # -- content processing jobs

    @on_loop
    def jobs(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the jobs, newest first. This is no look in the sense of `polls:N`."""
        self._state.prune()
        found = list(self._state.jobs)
        return [self._describe_job(job) for job in found[:limit]]

    @on_loop
    def job(self, uuid: str) -> dict[str, Any]:
        """Return one job."""
        return self._describe_job(self._job(uuid))

    @on_loop
    def text(self, uuid: str) -> str:
        """Return the text of a job, as far as it is extracted."""
        return self._job(uuid).text

    @on_loop
    def add_job(
        self,
        *,
        text: str = "",
        error: str | None = None,
        status: str | None = None,
        file_name: str | None = None,
        url: str | None = None,
        charset: str = "utf-8",
        username: str | None = None,
    ) -> str:
        """Add a job without an upload; return its uuid. Without `status` it advances like any other."""
        state = self._state
        name = None if url else file_name or "document.pdf"
        kind = "URL" if url else "FILE"
        subject = state.identity.accounts[username or state.settings.username].subject
        job = Job(subject, kind, state.clock.now(), url, name, charset=_known_charset(charset))
        state.add_job(job)
        state.settle_job(job, Outcome(text, error))
        if url:
            job.fetched = job.created
        if status is not None:
            job.force(status, state.clock.now())
        return job.uuid

    @on_loop
    def set_job(
        self,
        uuid: str,
        *,
        status: str | None = None,
        text: str | None = None,
        error: str | None = None,
        charset: str | None = None,
    ) -> None:
        """Change a job. A status set here stays until a refresh, and may be one that no document mentions."""
        job = self._job(uuid)
        if text is not None or error is not None:
            job.planned_failure = None
            self._state.settle_job(job, Outcome(job.text if text is None else text, error))
        if charset is not None:
            job.charset = _known_charset(charset)
        if status is not None:
            job.force(status, self._state.clock.now())

    @on_loop
    def finish_jobs(self, *uuids: str) -> None:
        """Let these jobs, or all jobs and assessments, come to their natural end now."""
        for job in map(self._job, uuids) if uuids else self._state.jobs:
            job.hurried = True
        for assessment in () if uuids else self._state.assessments:
            assessment.hurried = True

    @on_loop
    def fail_jobs(
        self, error: str = "The document cannot be read.", *, match: str = "*", times: int | None = 1
    ) -> None:
        """Let the next submitted or refreshed jobs end FAILED; `match` is a pattern for file name or URL."""
        self._state.planned_failure.append(PlannedFailure(error, match, times))

    @on_loop
    def remove_job(self, uuid: str) -> None:
        """Lose a job, as if the service had cleaned up."""
        self._state.jobs.remove(self._job(uuid))

    # -- identity

    @on_loop
    def tokens(self) -> dict[str, Any]:
        """Return what was issued lately (not the tokens themselves) and who is locked out."""
        identity = self._state.identity
        return {
            "issued": identity.issued_count,
            "latest": list(reversed(identity.issued)),
            "sessions": len(identity.sessions),
            "locked_users": identity.locked(),
        }

    @on_loop
    def expire_tokens(self) -> None:
        """Make all access tokens worthless now; refresh tokens keep working."""
        self._state.identity.expire_access()

    @on_loop
    def revoke_tokens(self) -> None:
        """Make all access and refresh tokens worthless now."""
        self._state.identity.revoke()

    @on_loop
    def unlock_users(self) -> None:
        """Let users in again who are locked out after wrong passwords."""
        self._state.identity.unlock()

    @on_loop
    def add_user(self, username: str, password: str, *, scope: str = f"profile email {SCOPE}") -> str:
        """Add another partner; return its subject. Without the scope `compliance` it may do nothing."""
        return self._state.identity.add_account(username, password, scope).subject

    @on_loop
    def change_password(self, password: str, *, username: str | None = None) -> None:
        """Give a user another password and end all sessions; the connection has the new password then."""
        state = self._state
        name = username or state.settings.username
        if name not in state.identity.accounts:
            raise KeyError(f"There is no user {name}.")
        state.identity.accounts[name].password = password
        state.identity.revoke()
        if name == state.settings.username:
            state.settings = state.settings.change(password=password)

    # -- catalogue

    @on_loop
    def frameworks(self) -> list[dict[str, Any]]:
        """Return the catalogue, with the keywords of the assessment rule."""
        return copy.deepcopy(self._state.catalogue.frameworks)

    @on_loop
    def set_frameworks(self, frameworks: list[dict[str, Any]]) -> None:
        """Put another catalogue in place."""
        self._state.catalogue.replace(frameworks)

    # -- assessments and feedback

    @on_loop
    def assessments(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the assessments, newest first, with payloads and results."""
        found = list(self._state.assessments)
        return [self._describe_assessment(each) for each in found[:limit]]

    @on_loop
    def add_assessment(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Add an assessment that is done; return it with its results."""
        state = self._state
        subject = state.identity.accounts[state.settings.username].subject
        assessment = Assessment(subject, payload, state.clock.now())
        state.assessments.add(assessment)
        state.finish_assessment(assessment)
        return self._describe_assessment(assessment)

    @on_loop
    def set_assessment(self, uuid: str, *, status: str | None = None, error: str | None = None) -> None:
        """Give an assessment a status, which stays and may be one that no document mentions, and a reason."""
        assessment = self._assessment(uuid)
        if status == "COMPLETED" and assessment.finished is None:
            self._state.finish_assessment(assessment)
        assessment.forced = status or assessment.forced
        assessment.error = error or assessment.error

    @on_loop
    def remove_assessment(self, uuid: str) -> None:
        """Lose an assessment, as if the service had cleaned up."""
        self._state.assessments.remove(self._assessment(uuid))

    @on_loop
    def feedback(self) -> list[dict[str, Any]]:
        """Return the feedback that was sent, oldest first."""
        return list(self._state.feedback)

    @on_loop
    def overview(self, limit: int = 200) -> dict[str, Any]:
        """Return everything that a person wants to see at a glance."""
        state = self._state
        return {
            "now": state.clock.now(),
            "url": self.url,
            "settings": self.settings(),
            "jobs": self.jobs(limit),
            "jobs_held": len(state.jobs),
            "jobs_forgotten": state.jobs.forgotten,
            "assessments": self.assessments(20),
            "assessments_held": len(state.assessments),
            "feedback": self.feedback()[-20:][::-1],
            "tokens": self.tokens(),
            "faults": self.faults(),
            "counters": self.counters(),
            "requests": self.requests()[-100:][::-1],
        }

    def _job(self, uuid: str) -> Job:
        job = self._state.jobs.get(uuid)
        if job is None:
            raise KeyError(f"There is no job {uuid}.")
        return job

    def _assessment(self, uuid: str) -> Assessment:
        assessment = self._state.assessments.get(uuid)
        if assessment is None:
            raise KeyError(f"There is no assessment {uuid}.")
        return assessment

    def _describe_job(self, job: Job) -> dict[str, Any]:
        status = self._state.status(job)
        return {
            "uuid": job.uuid,
            "source_type": job.source_type,
            "name": job.name,
            "status": status,
            "error": job.error if status == "FAILED" else None,
            "looks": job.looks,
            "characters": len(job.text),
            "excerpt": job.text[:200],
            "subject": job.subject,
            "created": job.created,
            "completed": job.finished,
            "fetched": job.fetched,
        }

    def _describe_assessment(self, assessment: Assessment) -> dict[str, Any]:
        return {
            "uuid": assessment.uuid,
            "status": self._state.assessment_status(assessment),
            "error": assessment.error,
            "payload": assessment.payload,
            "results": assessment.results,
            "created": assessment.created,
            "completed": assessment.finished,
        }


def _known_charset(name: str) -> str:
    "".encode(name)
    return name
