"""What stores say when something goes wrong."""

from __future__ import annotations

import errno
import traceback
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceStorageDeniedError, ComplianceStorageError
from airflow_provider.storage.locations import Action, Location, storage_errors


@pytest.mark.parametrize(
    ("action", "permission"),
    [
        ("written", "write there"),
        ("read", "read there"),
        ("checked", "read there"),
        ("searched", "list what is there"),
        ("cleaned up", "delete there"),
    ],
)
def test_a_denied_action_names_the_permission_to_check(action: Action, permission: str) -> None:
    messages = {}
    for uri in ("/x", "s3://conn@b/x", "s3://b/x"):
        with pytest.raises(ComplianceStorageDeniedError) as error, storage_errors(Location(uri), action):
            raise PermissionError("Access denied")
        messages[uri] = str(error.value)
    assert messages == {
        "/x": f"'/x' can't be {action}: Access denied. Check that the worker may {permission}.",
        "s3://conn@b/x": (
            f"'s3://conn@b/x' can't be {action}: Access denied. "
            f"Check the credentials of the connection 'conn', and that it may {permission}."
        ),
        "s3://b/x": (
            f"'s3://b/x' can't be {action}: Access denied. Check that the environment of the worker has "
            f"credentials that may {permission}, or add a connection to the URI: s3://conn_id@…."
        ),
    }


class LibraryError(Exception):
    """As of botocore, gcsfs or Azure, before it is one of Python's."""

    def __init__(self, **values: Any) -> None:
        super().__init__("refused")
        vars(self).update(values)


class NoCredentialsError(Exception):
    """As of botocore."""


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (LibraryError(status_code=401), "Check the credentials"),
        (LibraryError(code=403), "Check the credentials"),
        (NoCredentialsError(), "Check the credentials"),
        (LibraryError(code=404), "Create the bucket"),
        (LibraryError(code=503), None),
        # Of botocore: s3fs raises errors of Python for what is final, the rest may be of a proxy.
        (LibraryError(response={"ResponseMetadata": {"HTTPStatusCode": 403}}), None),
        (LibraryError(code="403"), None),
    ],
)
def test_refusal_of_a_store_is_final_however_its_library_says_it(
    error: Exception, advice: str | None
) -> None:
    with pytest.raises(ComplianceStorageError) as raised, storage_errors(Location("s3://c@b/k")):
        raise RuntimeError from error
    assert isinstance(raised.value, ComplianceStorageDeniedError) is (advice is not None)
    assert (advice or "then retry") in str(raised.value)


SECRET = "s3cr3t/0123+AbC"
LEAKS = [
    f"GET https://b.s3.amazonaws.com/k?X-Amz-Signature={SECRET}&x=1 failed",
    f"https://storage.googleapis.com/b/k?X-Goog-Signature={SECRET}",
    f"https://a.blob.core.windows.net/c?sv=2020&sig={SECRET}&se=1",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET}==;EndpointSuffix=x",
    f"Cannot connect to sftp://user:{SECRET.replace('/', '')}@host/x",
    f"headers: {{'Authorization': 'Bearer {SECRET}'}}",
    f'{{"client_secret": "{SECRET}"}}',
    f"password={SECRET}",
]


def _fail(messages: str, chain: str) -> None:
    """Fail as a library does: at once, from another error, or while handling one."""
    if chain == "alone":
        raise ConnectionError(messages)
    try:
        raise ConnectionError(messages)
    except ConnectionError as error:
        if chain == "cause":
            raise OSError("It did not work") from error
        raise OSError("It did not work")  # noqa: B904 - as libraries do


@pytest.mark.parametrize("chain", ["alone", "cause", "context"])
@pytest.mark.parametrize("messages", LEAKS)
def test_masked_secrets_are_not_in_the_traceback(messages: str, chain: str) -> None:
    with pytest.raises(ComplianceStorageError) as raised, storage_errors(Location("s3://c@b/k")):
        _fail(messages, chain)
    logged = "".join(traceback.format_exception(raised.value))
    for leak in (SECRET, SECRET.replace("/", "")):
        assert leak not in logged
        assert leak not in repr(raised.value)
    assert "***" in logged or "redacted" in logged
    assert "ConnectionError" in logged  # what it was, and where it came from
    assert "in _fail" in logged
    seen: list[BaseException] = [raised.value]
    for error in seen:  # following the chain by hand finds nothing either
        assert "s3cr3t" not in str(error)
        seen += [link for link in (error.__cause__, error.__context__) if link is not None]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EDQUOT, "Free space or choose another destination, then retry."),
        (errno.EROFS, "Make it writable or choose another destination, then retry."),
        (errno.EIO, "Check that the store is reachable, then retry."),
    ],
)
def test_advice_fits_the_cause(number: int, advice: str) -> None:
    with pytest.raises(ComplianceStorageError, match=advice), storage_errors(Location("/out/")):
        raise OSError("It failed") from OSError(number, "why")


def test_an_error_with_a_name_that_is_not_utf_8_can_be_logged() -> None:
    with pytest.raises(ComplianceStorageError) as raised, storage_errors(Location("/in/M\udce4rz.pdf")):
        raise OSError("M\udce4rz.pdf is locked")
    assert r"'/in/M\xe4rz.pdf' can't be written: M\xe4rz.pdf is locked" in str(raised.value)
    "".join(traceback.format_exception(raised.value)).encode()
