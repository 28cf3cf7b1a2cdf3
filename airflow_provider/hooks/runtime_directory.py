"""A directory of this user on this host, where processes leave what others of them should know."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from functools import cache
from pathlib import Path

NAME = "airflow-provider-compliance"
PRIVATE = 0o700

log = logging.getLogger(__name__)


@cache
def runtime_directory() -> Path | None:
    """Return the directory, which nobody else can read; None, with a warning, where there can't be one."""
    try:
        return create_runtime_directory()
    except OSError as error:
        log.warning("Nothing is shared between processes: %s", error)
        return None


def create_runtime_directory() -> Path:
    """Return the directory; an OSError says why there can't be one."""
    try:
        import fcntl  # noqa: F401 - there are no locks without it

        user = os.geteuid()
    except (ImportError, AttributeError):
        raise OSError("this platform has no file locks.") from None
    parent = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    path = Path(parent, f"{NAME}-{user}")
    path.mkdir(mode=PRIVATE, exist_ok=True)
    if not is_private(path.lstat()):
        raise PermissionError(
            f"'{path}' must be a directory of user {user} that nobody else can access. Remove it, or set its "
            "mode to 700."
        )
    return path


def is_private(found: os.stat_result) -> bool:
    """Return whether this is a directory of this user that nobody else can access."""
    mode = found.st_mode
    return stat.S_ISDIR(mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(mode) & 0o077
