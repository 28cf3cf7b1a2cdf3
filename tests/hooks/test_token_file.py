"""Shared tokens in a file: both clients over real sockets, several states of one process as its processes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import pickle
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider import exceptions as exc
from airflow_provider.client.base import SharedState
from airflow_provider.client.settings import CLIENT_CREDENTIALS, Settings
from airflow_provider.client.tokens import TokenStoreError
from airflow_provider.hooks import token_file
from airflow_provider.hooks.token_file import TokenFile, runtime_directory
from tests.client.test_secrets import SECRETS, everything_logged, shown
from tests.client.test_token_use import FRAMEWORKS
from tests.support import values
from tests.support.service import Received, Reply, Service

__all__ = ["everything_logged"]
settings_for = partial(values.settings_for, share_tokens=True)
SNAPSHOT = SecretStr('{"access_token": "access-1"}')
WRONG = Reply(401, json={"error": "invalid_grant"})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def settings(service: Service) -> Settings:
    return settings_for(service.url)


@pytest.fixture
def file(directory: Path) -> TokenFile:
    return TokenFile(directory, settings_for("https://api.example.com"))


Start = Callable[..., Any]


@pytest.fixture
def start(connect: Any, directory: Path, settings: Settings) -> Start:
    """Make a client with a state of its own, as in a process of its own."""

    def make(settings: Settings = settings) -> Any:
        return connect(settings, SharedState(settings, TokenFile(directory, settings)))

    return make


# -- what processes have of it


def test_processes_share_one_login(start: Start, service: Service, directory: Path) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    for _ in range(5):
        assert start()("list_frameworks") == []
    assert service.grants() == ["password"]
    assert {r.token for r in service.requests_to(FRAMEWORKS)} == {"access-1"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    stored = b"".join(path.read_bytes() for path in directory.iterdir()).decode(errors="replace")
    assert not [
        secret for secret in (*SECRETS, "alice", "partner", "token_url", service.url) if secret in stored
    ]


def test_a_wrong_password_is_tried_once_and_a_changed_one_at_once(
    start: Start, service: Service, settings: Settings
) -> None:
    def check(request: Received) -> Reply:
        return service._issue_token(request) if request.form.get("password") == "new" else WRONG

    service.on("POST /token", check)
    service.on(FRAMEWORKS, Reply(json=[]))
    for _ in range(3):
        with pytest.raises(exc.ComplianceAuthError, match="refused user 'alice'"):
            start()("list_frameworks")
    assert service.grants() == ["password"]
    changed = settings_for(service.url, password=SecretStr("new"))
    for _ in range(2):
        assert start(changed)("list_frameworks") == []
        with pytest.raises(exc.ComplianceAuthError, match="Another process on this host"):
            start()("list_frameworks")  # some processes still have the old one: neither forgets the other's
    assert service.grants() == ["password"] * 2


@pytest.mark.parametrize(
    "change",
    [
        {"token_url": "https://id.example.com/other"},
        {"client_id": "other"},
        {"username": "bob"},
        {"password": SecretStr("other")},
        {"client_secret": SecretStr("other")},
        {"grant_type": CLIENT_CREDENTIALS},
        {"share_tokens": False},
    ],
)
def test_other_credentials_have_another_file_and_another_key(
    file: TokenFile, directory: Path, change: dict[str, Any]
) -> None:
    file.save(SNAPSHOT)
    other = TokenFile(directory, settings_for("https://api.example.com", **change))
    assert other.load() is None
    file.path.rename(other.path)
    assert other.load() is None


def test_other_settings_have_the_same_file(file: TokenFile, directory: Path) -> None:
    file.save(SNAPSHOT)
    other = settings_for("https://api.example.com", timeout=1.0, name="other")
    assert TokenFile(directory, other).load() == SNAPSHOT


def test_a_key_is_derived_once(file: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.save(SNAPSHOT)
    monkeypatch.setattr(hashlib, "scrypt", None)
    for _ in range(3):
        assert file.load() == SNAPSHOT
        file.save(SNAPSHOT)


# -- the lock


def test_a_lock_excludes_all_others_until_it_is_released(file: TokenFile, directory: Path) -> None:
    other = TokenFile(directory, settings_for("https://api.example.com"))
    lock = file.try_lock()
    assert lock
    assert other.try_lock() is None
    lock.release()
    lock.release()
    again = other.try_lock()
    assert again
    del again  # as when the task is cancelled whose thread has acquired it
    assert file.try_lock()


def test_a_lock_file_that_was_removed_is_not_a_lock(
    file: TokenFile, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file.path.with_name(f"{file.path.name}.lock")

    def remove_first(descriptor: int, operation: int) -> None:
        path.unlink()
        monkeypatch.undo()
        fcntl.flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    assert file.try_lock() is None
    assert file.try_lock()


# -- files and directories that are not as they should be

Damage = Callable[[Path], Any]


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def symlink(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


DAMAGES: dict[str, Damage] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "binary": lambda path: path.write_bytes(os.urandom(1000)),
    "huge": lambda path: os.truncate(path, 2**40),
    "FIFO": fifo,
    "symbolic link": symlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_not_as_it_should_be_is_ignored_and_replaced(
    file: TokenFile, directory: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.save(SNAPSHOT)
    DAMAGES[damage](file.path)
    assert file.load() is None
    file.save(SNAPSHOT)
    found = file.path.lstat()
    assert (stat.S_ISREG(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o600)
    assert TokenFile(directory, settings_for("https://api.example.com")).load() == SNAPSHOT
    assert caplog.messages == []


def test_a_directory_in_the_place_of_the_file_is_named_once(
    file: TokenFile, caplog: pytest.LogCaptureFixture
) -> None:
    file.path.mkdir()
    for _ in range(2):
        assert file.load() is None
        file.save(SNAPSHOT)
    assert len(caplog.messages) == 1
    assert str(file.path) in caplog.text


def test_a_lock_file_that_is_a_link_switches_sharing_off_with_one_warning(
    start: Start,
    service: Service,
    settings: Settings,
    directory: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    start()("list_frameworks")
    path = TokenFile(directory, settings).path
    symlink(path.with_name(f"{path.name}.lock"))
    service.token_life = 0
    process = start()
    for _ in range(3):
        assert process("list_frameworks") == []
    assert service.grants() == ["password", "password", "refresh_token", "refresh_token"]
    assert len([m for m in caplog.messages if "Tokens are not shared" in m]) == 1


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_can_access_is_not_used(
    file: TokenFile, directory: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    file.save(SNAPSHOT)
    directory.chmod(mode)
    assert file.load() is None
    with pytest.raises(TokenStoreError):
        file.try_lock()
    assert "that no one else can access" in caplog.text


def test_a_directory_of_another_user_or_a_link_is_not_used(
    file: TokenFile, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.save(SNAPSHOT)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 12345)
        assert file.load() is None
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to("elsewhere")
    assert file.load() is None
    file.save(SNAPSHOT)
    with pytest.raises(TokenStoreError):
        file.try_lock()


def test_a_directory_that_was_cleaned_away_is_made_again(file: TokenFile, directory: Path) -> None:
    file.save(SNAPSHOT)
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    lock = file.try_lock()
    assert lock
    file.save(SNAPSHOT)
    assert file.load() == SNAPSHOT
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space"), KeyboardInterrupt()])
def test_a_write_that_is_interrupted_leaves_no_file_beside_the_tokens(
    file: TokenFile, directory: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with suppress(KeyboardInterrupt):
        file.save(SNAPSHOT)
    assert list(directory.iterdir()) == []


def test_files_are_in_a_directory_that_names_the_provider_and_the_user() -> None:
    assert runtime_directory().name == f"airflow-provider-compliance-{os.geteuid()}"


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_can_not_be_written_is_gone_and_the_process_continues(
    start: Start,
    service: Service,
    settings: Settings,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    service.token_life = 0
    process = start()
    process("list_frameworks")
    opening = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_EXCL:
            raise OSError(code, os.strerror(code))
        return opening(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    for _ in range(2):
        assert process("list_frameworks") == []
    path = TokenFile(directory, settings).path
    assert not path.exists()  # else a process would use a refresh token that is used up
    (message,) = (m for m in caplog.messages if "Tokens" in m)
    assert message.startswith(f"Tokens are not shared: '{path}' can't be written ({os.strerror(code)}).")
    monkeypatch.undo()
    assert process("list_frameworks") == []
    assert path.exists()


def test_files_that_no_process_uses_any_more_are_removed(file: TokenFile, directory: Path) -> None:
    lock = file.try_lock()
    assert lock
    locked = file.path.with_name(f"{file.path.name}.lock")
    crashed, changed, young = (directory / name for name in ("tokens-1.23.tmp", "tokens-2", "tokens-3"))
    for path in (crashed, changed, young):
        path.write_bytes(b"")
    for path in (crashed, changed, locked):
        os.utime(path, (0, 0))
    file.save(SNAPSHOT)
    assert sorted(directory.iterdir()) == sorted([file.path, locked, young])


# -- secrets


def test_neither_errors_nor_logs_nor_frames_nor_pickles_show_a_secret(
    start: Start,
    service: Service,
    settings: Settings,
    directory: Path,
    everything_logged: pytest.LogCaptureFixture,
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    first = start()
    first("list_frameworks")
    service.on(FRAMEWORKS, Reply(401))
    second, said = start(), []
    for process in (first, second):
        with pytest.raises(exc.ComplianceAuthError) as caught:
            process("list_frameworks")
        said.append(shown(caught.value))
    service.on("POST /token", WRONG)
    TokenFile(directory, settings).path.unlink()
    for _ in range(2):
        with pytest.raises(exc.ComplianceAuthError) as caught:
            start()("list_frameworks")
        said.append(shown(caught.value))
    file = TokenFile(directory, settings)
    file.save(SNAPSHOT)
    text = " ".join([*said, everything_logged.text, repr(vars(file)), repr(file.load())])
    assert not [secret for secret in SECRETS if secret in text]
    assert pickle.loads(pickle.dumps(file)).load() == SNAPSHOT


@pytest.mark.parametrize("share_tokens", [True, False])
def test_without_scrypt_there_is_no_file(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, share_tokens: bool
) -> None:
    settings = settings_for("https://api.example.com", share_tokens=share_tokens)
    token_file.check_encryption.cache_clear()
    token_file._log_once.cache_clear()
    monkeypatch.delattr(hashlib, "scrypt")
    assert token_file.open_token_file(settings) is token_file.open_token_file(settings) is None
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == share_tokens
