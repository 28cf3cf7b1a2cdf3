"""The knowledge about a login that all processes of this user on this host share, in an encrypted file."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from pydantic import SecretStr

from airflow_provider.client.settings import PASSWORD, Settings
from airflow_provider.client.tokens import TokenStoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DIRECTORY_NAME = "airflow-provider-compliance"
PRIVATE, PRIVATE_FILE = 0o700, 0o600
MAX_FILE_BYTES = 8 * 1024**2
UNUSED_SECONDS = 86_400.0  # an older file was left by a crash, or is of a password that was changed
NAME_BYTES, NONCE_BYTES, KEY_BYTES = 16, 12, 32
# About five milliseconds and 1 MB: it slows down who guesses a weak password, with a file that was copied.
SCRYPT = {"n": 2**10, "r": 8, "p": 1}

log = logging.getLogger(__name__)


def open_token_file(settings: Settings) -> TokenFile | None:
    """Return the file of a login; where there can't be one, None, with a warning if tokens are shared."""
    try:
        check_encryption()
    except OSError as error:
        _log_once(str(error), shares_tokens=settings.share_tokens)
        return None
    return TokenFile(runtime_directory(), settings)


@cache
def check_encryption() -> None:
    """Raise an OSError if this Python lacks what a file needs."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401 - comes with Airflow

        hashlib.scrypt(b"", salt=b"", n=2, r=1, p=1)
    except (ImportError, AttributeError, ValueError):  # some builds of OpenSSL have no scrypt
        raise OSError("this Python lacks the package cryptography, or scrypt in OpenSSL.") from None


@cache
def _log_once(problem: str, *, shares_tokens: bool) -> None:
    if shares_tokens:
        log.warning("Tokens are not shared: %s", problem)
    else:
        log.info("Refused credentials are not remembered for other processes: %s", problem)


@lru_cache(maxsize=16)
def _derive(settings: Settings) -> tuple[str, AESGCM]:
    """Return the name of the file of these credentials, and the cipher for its content."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    has_user = settings.grant_type == PASSWORD
    login = [settings.token_url, settings.client_id, settings.grant_type, has_user and settings.username]
    keys = [has_user and settings.password.get_secret_value(), settings.client_secret.get_secret_value()]
    salt, material = (json.dumps(values).encode() for values in (login, keys))
    derived = hashlib.scrypt(material, salt=salt, **SCRYPT, dklen=NAME_BYTES + KEY_BYTES)
    kind = "tokens" if settings.share_tokens else "login"
    return f"{kind}-{derived[:NAME_BYTES].hex()}", AESGCM(derived[NAME_BYTES:])


class TokenFile:
    """A `TokenStore` of all processes with the same credentials.

    :param directory: a directory that no other user can access
    :param settings: the credentials, from which name and key are derived
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory, self._settings = directory, settings

    @property
    def path(self) -> Path:
        """The file."""
        return self._directory / _derive(self._settings)[0]

    def try_lock(self) -> FileLock | None:
        """Return the lock, or None while another process has it."""
        try:
            with private_directory(self._directory) as directory:
                return FileLock.try_acquire(directory, f"{self.path.name}.lock")
        except OSError as error:
            self._warn("can't be locked", error)
            raise TokenStoreError from None

    def load(self) -> SecretStr | None:
        """Return the last snapshot of these credentials; None if it is missing or unreadable."""
        from cryptography.exceptions import InvalidTag

        name, cipher = _derive(self._settings)
        try:
            with private_directory(self._directory) as directory:
                data = _read(directory, name)
            return SecretStr(cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name.encode()).decode())
        except OSError as error:
            self._warn("can't be read", error)
        except (InvalidTag, ValueError):  # missing or damaged
            pass
        return None

    def save(self, snapshot: SecretStr) -> None:
        """Replace the snapshot of these credentials."""
        name, cipher = _derive(self._settings)
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + cipher.encrypt(nonce, snapshot.get_secret_value().encode(), name.encode())
        try:
            with private_directory(self._directory) as directory:
                try:
                    _remove_unused(directory)
                    _replace(directory, name, data)
                except OSError:
                    # Its refresh token may be used up: better none than an outdated one.
                    with suppress(OSError):
                        os.unlink(name, dir_fd=directory)
                    raise
        except OSError as error:
            self._warn("can't be written", error)

    def _warn(self, problem: str, error: OSError) -> None:
        reason = error.strerror or error
        text = f"'{self.path}' {problem} ({reason}). It may be removed at any time."
        _log_once(text, shares_tokens=self._settings.share_tokens)


def _read(directory: int, name: str) -> bytes:
    """Return the content of a file; nothing if it is missing or foreign."""
    with suppress(OSError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        try:
            return os.read(descriptor, MAX_FILE_BYTES)
        finally:
            os.close(descriptor)
    return b""


def _replace(directory: int, name: str, data: bytes) -> None:
    """Write a file atomically; without fsync, because after a power failure a login is due anyway."""
    temporary = f"{name}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, PRIVATE_FILE, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _remove_unused(directory: int) -> None:
    """Remove old files, but no lock: to remove it would let two have it."""
    oldest = time.time() - UNUSED_SECONDS
    for file in os.listdir(directory):
        with suppress(OSError):
            if not file.endswith(".lock") and os.lstat(file, dir_fd=directory).st_mtime < oldest:
                os.unlink(file, dir_fd=directory)


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
        :param name: the file in it, which stays there
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        lock = cls(os.open(name, flags, PRIVATE_FILE, dir_fd=directory))
        try:
            fcntl.flock(lock._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A cleaner of temporary files that removes the file also removes the lock.
            if os.lstat(name, dir_fd=directory).st_ino == os.fstat(lock._descriptor).st_ino:
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

    __del__ = release  # a cancelled task never sees the lock that its thread acquired


_locks: WeakSet[FileLock] = WeakSet()


def _after_fork() -> None:
    """Leave the locks of the parent to the parent, which may end before this child."""
    for lock in list(_locks):
        lock.close()
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)


def runtime_directory() -> Path:
    """Return the directory of this user's files, which may not exist yet."""
    parent = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(parent, f"{DIRECTORY_NAME}-{os.geteuid()}")


@contextmanager
def private_directory(path: Path) -> Iterator[int]:
    """Open a directory that no other user can access, and create it if it is missing.

    Checks it each time: a cleaner of temporary files may remove it, and another user may replace it.
    """
    path.mkdir(mode=PRIVATE, exist_ok=True)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(
                f"'{path}' must be a directory of user {os.geteuid()} that no one else can access. Remove "
                "it, or set its mode to 700."
            )
        yield directory
    finally:
        os.close(directory)
