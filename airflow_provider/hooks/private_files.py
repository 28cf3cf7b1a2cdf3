"""Files of this user on this host that no other user can access, and locks between processes."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

DIRECTORY_NAME = "airflow-provider-compliance"
PRIVATE, PRIVATE_FILE = 0o700, 0o600


class FileLock:
    """A file that is locked as long as its descriptor is open; a crash closes it.

    :param descriptor: the open file
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _locks.add(self)

    @classmethod
    def try_acquire(cls, directory: int, name: str) -> FileLock | None:
        """Return the lock, or None while another process has it; an OSError if there can't be one.

        :param directory: descriptor of a private directory
        :param name: the file in it; it stays there, because to remove it would let two have the lock
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = cls(os.open(name, flags, PRIVATE_FILE, dir_fd=directory))
        try:
            found = check_private_file(lock._descriptor)
            fcntl.flock(lock._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A cleaner of temporary files that removes the file also removes the lock.
            if os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino == found.st_ino:
                return lock
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            lock.release()
            raise
        lock.release()
        return None

    def release(self) -> None:
        """Release the lock, even if a forked child still has the descriptor."""
        if self._descriptor >= 0:
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.close()

    def close(self) -> None:
        """Close the descriptor; the lock is released when no process has it open any more."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = release  # a cancelled task never sees the lock that its thread has acquired


_locks: WeakSet[FileLock] = WeakSet()


def _after_fork() -> None:
    """Leave the locks of the parent to the parent, which may end before this child."""
    for lock in list(_locks):
        lock.close()
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)


def check_private_file(descriptor: int) -> os.stat_result:
    """Return the state of a file that no other user can have read or written; any other is an error."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError("it is not a regular file that only this user can access")
    return found


def create_runtime_directory() -> Path:
    """Return a directory that no other user can read; an OSError says why there can't be one."""
    user = os.geteuid()
    parent = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    path = Path(parent, f"{DIRECTORY_NAME}-{user}")
    path.mkdir(mode=PRIVATE, exist_ok=True)
    if not is_private(path.lstat()):
        raise PermissionError(
            f"'{path}' must be a directory of user {user} that no one else can access. Remove it, or set its "
            "mode to 700."
        )
    return path


def is_private(found: os.stat_result) -> bool:
    """Return whether this is a directory of this user that no other user can access."""
    mode = found.st_mode
    return stat.S_ISDIR(mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(mode) & 0o077
