"""What all processes of this user on this host know of a login, in an encrypted file."""

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
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pydantic import SecretStr

from airflow_provider.client.settings import PASSWORD, Settings
from airflow_provider.client.tokens import TokenStoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DIRECTORY_NAME = "airflow-provider-compliance"
PRIVATE, PRIVATE_FILE = 0o700, 0o600
FORMAT = 1
MAX_FILE_BYTES = 8 * 1024**2
MAX_ENTRIES = 4  # of one login, with different passwords: some processes still have the previous one
LEFTOVER_SECONDS = 60.0  # a temporary file that is older was left by a crash
TEMPORARY = ".tmp"
SALT_BYTES, NONCE_BYTES, KEY_BYTES = 16, 12, 32
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


class TokenFile:
    """A `TokenStore` of one login, for all processes with the same credentials.

    :param directory: a directory that no other user can access
    :param settings: the credentials, from which the key is derived
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory, self._settings = directory, settings
        user = settings.username if settings.grant_type == PASSWORD else ""
        login = [FORMAT, settings.token_url, settings.client_id, user, settings.grant_type]
        kind = "tokens" if settings.share_tokens else "login"
        self._name = f"{kind}-{hashlib.sha256(json.dumps(login).encode()).hexdigest()[:32]}"
        self._cipher: tuple[bytes, AESGCM] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenFile, (self._directory, self._settings)  # without the key

    @property
    def path(self) -> Path:
        """The file."""
        return self._directory / self._name

    def try_lock(self) -> FileLock | None:
        """Return the lock, or None while another process has it."""
        try:
            with private_directory(self._directory) as directory:
                return FileLock.try_acquire(directory, f"{self._name}.lock")
        except OSError as error:
            self._warn("can't be locked", error)
            raise TokenStoreError from None

    def load(self) -> SecretStr | None:
        """Return the last snapshot of these credentials; None if there is none that can be read."""
        try:
            with private_directory(self._directory) as directory:
                salt, entries = _read(directory, self._name)
        except OSError as error:
            self._warn("can't be read", error)
            return None
        found = (self._decrypt(salt, entry) for entry in entries)
        return next((snapshot for snapshot in found if snapshot), None)

    def save(self, snapshot: SecretStr) -> None:
        """Replace the snapshot of these credentials; keep those of others."""
        try:
            with private_directory(self._directory) as directory:
                try:
                    salt, entries = _read(directory, self._name)
                    others = [entry for entry in entries if not self._decrypt(salt, entry)]
                    entries = [self._encrypt(salt, snapshot), *others][:MAX_ENTRIES]
                    _remove_leftovers(directory, self._name)
                    _replace(directory, self._name, salt, *entries)
                except OSError:
                    # Its refresh token may be used up: better none than an outdated one.
                    with suppress(OSError):
                        os.unlink(self._name, dir_fd=directory)
                    raise
        except OSError as error:
            self._warn("can't be written", error)

    def _encrypt(self, salt: bytes, snapshot: SecretStr) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher_for(salt).encrypt(
            nonce, snapshot.get_secret_value().encode(), self._name.encode()
        )

    def _decrypt(self, salt: bytes, entry: bytes) -> SecretStr | None:
        from cryptography.exceptions import InvalidTag

        try:
            nonce, data = entry[:NONCE_BYTES], entry[NONCE_BYTES:]
            return SecretStr(self._cipher_for(salt).decrypt(nonce, data, self._name.encode()).decode())
        except (InvalidTag, ValueError):  # another password, or damaged
            return None

    def _cipher_for(self, salt: bytes) -> AESGCM:
        """Derive the key once per process: the salt stays as long as the file is intact."""
        if self._cipher is None or self._cipher[0] != salt:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            settings = self._settings
            password = settings.password.get_secret_value() if settings.grant_type == PASSWORD else ""
            material = json.dumps([password, settings.client_secret.get_secret_value()]).encode()
            self._cipher = salt, AESGCM(hashlib.scrypt(material, salt=salt, **SCRYPT, dklen=KEY_BYTES))
        return self._cipher[1]

    def _warn(self, problem: str, error: OSError) -> None:
        reason = error.strerror or error
        text = f"'{self.path}' {problem} ({reason}). It may be removed at any time."
        _log_once(text, shares_tokens=self._settings.share_tokens)


def _read(directory: int, name: str) -> tuple[bytes, list[bytes]]:
    """Return the salt of all keys in a file, and an encrypted snapshot for each password.

    A file that is missing, damaged or foreign has a new salt, and no snapshots.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        try:
            size = check_private_file(descriptor).st_size
            record = json.loads(os.read(descriptor, size) if size <= MAX_FILE_BYTES else b"")
        finally:
            os.close(descriptor)
        salt, *entries = (b64decode(text, validate=True) for text in (record["salt"], *record["entries"]))
        if record["format"] == FORMAT:
            return salt, entries
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        pass
    return os.urandom(SALT_BYTES), []


def _replace(directory: int, name: str, *parts: bytes) -> None:
    """Write a file atomically; without fsync, because after a power failure a login is due anyway."""
    salt, *entries = (b64encode(part).decode() for part in parts)
    data = json.dumps({"format": FORMAT, "salt": salt, "entries": entries}).encode()
    temporary = f"{name}.{secrets.token_hex(8)}{TEMPORARY}"
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


def _remove_leftovers(directory: int, name: str) -> None:
    """Remove what crashed processes have left, but not what one may be writing without the lock."""
    oldest = time.time() - LEFTOVER_SECONDS
    for file in os.listdir(directory):
        if file.startswith(f"{name}.") and file.endswith(TEMPORARY):
            with suppress(OSError):
                if os.stat(file, dir_fd=directory, follow_symlinks=False).st_mtime < oldest:
                    os.unlink(file, dir_fd=directory)


# -- files that no other user can access


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


def runtime_directory() -> Path:
    """Return the directory of this user's files, which may not exist yet."""
    parent = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(parent, f"{DIRECTORY_NAME}-{os.geteuid()}")


@contextmanager
def private_directory(path: Path) -> Iterator[int]:
    """Open a directory that no other user can access, and create it if there is none.

    It is checked each time: a cleaner of temporary files may have removed it, and another user replaced it.
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
