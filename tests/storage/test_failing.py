"""What stores say when something goes wrong."""

from __future__ import annotations

import pytest

from airflow_provider.exceptions import ComplianceStorageDeniedError
from airflow_provider.storage.failing import Doing, storage_errors
from airflow_provider.storage.locations import Location


@pytest.mark.parametrize(
    ("doing", "right"),
    [
        ("written", "write there"),
        ("read", "read there"),
        ("looked at", "read there"),
        ("searched", "list what is there"),
        ("tidied up", "delete there"),
    ],
)
def test_who_is_not_allowed_to_do_something_is_told_to_check_just_that(doing: Doing, right: str) -> None:
    said = {}
    for uri in ("/x", "s3://conn@b/x", "s3://b/x"):
        with pytest.raises(ComplianceStorageDeniedError) as error, storage_errors(Location(uri), doing):
            raise PermissionError("Access denied")
        said[uri] = str(error.value)
    assert said == {
        "/x": f"'/x' can't be {doing}: Access denied. Check who may {right}.",
        "s3://conn@b/x": (
            f"'s3://conn@b/x' can't be {doing}: Access denied. Check that the connection 'conn' exists and "
            f"has credentials, and that they may {right}."
        ),
        "s3://b/x": (
            f"'s3://b/x' can't be {doing}: Access denied. Check that the environment of the worker has "
            f"credentials, and that they may {right}, or name a connection: s3://conn_id@…."
        ),
    }
