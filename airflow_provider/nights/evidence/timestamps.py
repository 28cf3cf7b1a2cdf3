"""RFC 3161 timestamps: an authority signs the hash of a record, and the time. They never hold up a night."""

from __future__ import annotations

import logging
import re
import secrets
from time import monotonic

from airflow_provider.client.http.transport import TimedSession
from airflow_provider.exceptions import ComplianceError
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.verifier import BLOCK_BYTES as MAX_BYTES
from airflow_provider.runtime.params import read_option
from airflow_provider.storage.atomic import create_once
from airflow_provider.storage.locations import error_text

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0  # to connect and between two reads; three times that for the whole response
MAX_SECONDS = 60.0  # for all records
MAX_RECORDS = 30  # that a night fills
QUERY = "application/timestamp-query"
# DER of the parts of a request: version 1; SHA-256; an integer of 8 bytes; "include the certificate".
VERSION, CERTIFICATE = bytes.fromhex("020101"), bytes.fromhex("0101ff")
IMPRINT = bytes.fromhex("3031300d060960864801650304020105000420")
NONCE = bytes.fromhex("0208")
# Of a response: its size, and a status of 0 or 1, which is with changes.
GRANTED = re.compile(rb"\x30\x82(..)\x30\x81?.\x02\x01[\x00\x01]", re.DOTALL)
# A token has signed data, the content of a timestamp, and the certificate of an authority.
OBJECT_IDS = tuple(map(bytes.fromhex, ("2a864886f70d010702", "2a864886f70d0109100104", "2b06010505070308")))


def stamp(chain: Chain, head: ChainRecord) -> None:
    """Store a timestamp beside a record, and beside those before it that got none; what fails is a warning.

    Only if `[compliance] timestamp_url` is set.
    """
    if not (url := read_option("timestamp_url")):
        return
    end = monotonic() + MAX_SECONDS
    number = head.number
    try:
        names = set(chain.folder.list_names())
        for number in range(head.number, max(0, head.number - MAX_RECORDS), -1):
            token = chain.folder / f"{number:08}.tsr"
            if f"{number:08}.tsr" not in names and monotonic() < end:
                record = head if number == head.number else chain.read(number)
                create_once(token, fetch(url, bytes.fromhex(record.sha256)))
    except Exception as error:
        text = f"Record {number} of the evidence has no timestamp: {error_text(error).removesuffix('.')}."
        log.warning("%s The next night will try again.", text)


def fetch(url: str, digest: bytes) -> bytes:
    """Return the response of an authority: a token for a SHA-256."""
    nonce = bytes([64 | secrets.randbits(6)]) + secrets.token_bytes(7)  # positive, without a leading zero
    body = VERSION + IMPRINT + digest + NONCE + nonce + CERTIFICATE
    with TimedSession() as session:
        session.trust_env = True  # for a proxy
        response = session.post(
            url,
            data=bytes([0x30, len(body)]) + body,
            headers={"Content-Type": QUERY, "Accept-Encoding": "identity"},
            timeout=TIMEOUT_SECONDS,
            stream=True,
        )
        with response:
            content: bytes = response.raw.read(MAX_BYTES)  # more would be cut off, and is not a token
    if response.status_code != 200 or not is_token(content, digest, nonce):
        raise ComplianceError(
            f"The authority answered with status {response.status_code}, and without a token for the "
            "record. Check [compliance] timestamp_url."
        )
    return content


def is_token(content: bytes, digest: bytes, nonce: bytes) -> bool:
    """Return whether a response is whole, and granted for a hash; who signed it is not verified here."""
    found = GRANTED.match(content)
    is_whole = found is not None and int.from_bytes(found[1], "big") == len(content) - found.end(1)
    return is_whole and all(part in content for part in (*OBJECT_IDS, digest, NONCE + nonce))
