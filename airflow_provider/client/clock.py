"""The clock of the service: the one that all attempts, workers and triggerers share."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime

log = logging.getLogger(__name__)

PRECISION_SECONDS = 2.0  # of a `Date`, which has whole seconds and has travelled
MAX_SKEW_SECONDS = 60.0  # of this machine, before a warning


class ServiceClock:
    """The time at the service, as the `Date` of its responses tells it.

    Until the first response it is the time of this machine. What other machines have written, such as when
    they submitted a job, is compared with this time: their clocks may differ by hours.

    :param url: of the service, for the warning
    :ivar is_known: the service has told its time
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._date = ""
        self._offset: float | None = None  # from our monotonic clock: the wall clock may jump
        self._is_warned = False

    @property
    def is_known(self) -> bool:
        """Whether the service has told its time."""
        return self._offset is not None

    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        return time.time() if self._offset is None else time.monotonic() + self._offset

    def observe(self, headers: Mapping[str, str]) -> None:
        """Read the time from the headers of a response; one from a cache, with an age, does not tell it."""
        date = headers.get("date", "")
        if not date or date == self._date or "age" in headers:
            return
        self._date = date
        with suppress(ValueError, TypeError, OverflowError):
            sent = parsedate_to_datetime(date)
            at = sent.replace(tzinfo=sent.tzinfo or UTC).timestamp() + 0.5
            skew = time.time() - at
            self._offset = at + (skew if abs(skew) <= PRECISION_SECONDS else 0.0) - time.monotonic()
            if abs(skew) > MAX_SKEW_SECONDS and not self._is_warned:
                self._is_warned = True
                log.warning(
                    "The clock of this machine is %.0f s %s that of %s: set it, for example by NTP. "
                    "Limits of time count by the clock of the service.",
                    abs(skew), "ahead of" if skew > 0 else "behind", self._url,
                )  # fmt: skip
