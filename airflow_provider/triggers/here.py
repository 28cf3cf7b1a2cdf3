"""Waiting in the task's own process, where it is not deferred."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import ComplianceError
from airflow_provider.triggers.waiting import FINAL, SAY_EVERY, Ending, Record, may_pass, next_look

if TYPE_CHECKING:
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.triggers.work import Sighting, Work


class Look:
    """One look at everything that is waited for.

    :param left: what has not come to its end
    :param refusal: an error that no patience can mend
    """

    def __init__(self, work: Work, hook: ComplianceHook, ids: list[str], log: Any) -> None:
        self.ended: dict[str, Record] = {}
        self.refusal: ComplianceError | None = None
        obstacle: ComplianceError | None = None

        def see(identifier: str, sighting: Sighting) -> None:
            nonlocal obstacle
            if not isinstance(sighting, ComplianceError):
                if sighting["status"] in FINAL:
                    self.ended[identifier] = sighting
            elif may_pass(sighting):
                obstacle = sighting
            else:
                self.refusal = sighting

        work.look_now(hook, ids, see)
        if obstacle:
            log.warning("The service can't be asked right now, going on: %s", obstacle)
        self.left = [each for each in ids if each not in self.ended]


def wait_here(
    work: Work, hook: ComplianceHook, ids: Iterable[str], poll_interval: float, deadline: float, log: Any
) -> Ending:
    """Wait in this process until all have come to their end, or the wall clock says `deadline`.

    :param work: what is waited for
    :param hook: the hook
    :param ids: which of them
    :param poll_interval: longest time between two looks
    :param deadline: seconds since the epoch
    :param log: the task's log
    """
    left = list(dict.fromkeys(ids))
    ended: dict[str, Record] = {}
    since = said = time.monotonic()
    while True:
        look = Look(work, hook, left, log)
        ended |= look.ended
        left = look.left
        now = time.monotonic()
        if look.refusal:
            return Ending("error", ended, now - since, str(look.refusal))
        if not left:
            return Ending("done", ended, now - since)
        pause = min(next_look(now, since, poll_interval, work.pace(len(left))) - now, deadline - time.time())
        if pause <= 0:
            return Ending("timeout", ended, now - since)
        if now - said >= SAY_EVERY:
            said = now
            log.info("Still waiting for %s of %s %ss after %.0f s.",
                     len(left), len(left) + len(ended), work.noun, now - since)  # fmt: skip
        time.sleep(pause)
