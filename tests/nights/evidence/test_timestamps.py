"""An authority signs the hashes of records; a night never waits for it."""

from __future__ import annotations

import gzip
import hashlib
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import load_pem_x509_certificate

from airflow_provider.cli.commands import main
from airflow_provider.nights.evidence import timestamps, verifier
from tests.nights.evidence.authority import Authority, openssl
from tests.support.nights import Nights, rewrite
from tests.support.service import Drip, Hang, Raw, Reply, Service

Verify = Callable[..., tuple[int, str]]
ROUTE = "POST /sign"
NOW = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "one")


@pytest.fixture(autouse=True)
def _configured(monkeypatch: pytest.MonkeyPatch, service: Service, authority: Authority) -> None:
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__TIMESTAMP_URL", f"{service.url}/sign")
    service.on(ROUTE, authority.answer)


@pytest.fixture
def records(nights: Nights) -> Path:
    return Path(nights.base.removeprefix("file://")) / "_evidence/nights"


@pytest.fixture
def verify(records: Path, authority: Authority, capsys: pytest.CaptureFixture[str]) -> Verify:
    def run(*arguments: object) -> tuple[int, str]:
        code = main(["verify", str(records), *map(str, arguments or ("--ca", authority.ca))])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def close(nights: Nights, day: int, **documents: str) -> str:
    documents = documents or {"a.pdf": "FAILED"}
    return str(nights.close(day, ingested=nights.ingested(f"n{day}", **documents))["sha256"])


def words(output: str) -> list[str]:
    return re.findall(r"\b(CHAINED|TIMESTAMPED)\b", output)


def test_record_is_signed_and_openssl_accepts_the_token(
    nights: Nights, records: Path, verify: Verify, authority: Authority
) -> None:
    close(nights, 1)
    record, token = records / "00000001.json", records / "00000001.tsr"
    openssl("ts", "-verify", "-data", str(record), "-in", str(token), "-CAfile", str(authority.ca))
    code, output = verify()
    assert code == 0
    assert re.search(f"TIMESTAMPED {NOW} by /O=Example/CN=Example Timestamps$", output, re.MULTILINE)
    # No word is said about what was not verified.
    assert words(verify("--json")[1]) == []
    assert "CHAINED (timestamp not verified: give --ca)" in verify("--since", "2026-01-01")[1]


@pytest.fixture
def rfc3161() -> Any:
    """Another implementation of RFC 3161, which is not based on OpenSSL."""
    return pytest.importorskip(
        "rfc3161_client", reason="these tests need rfc3161-client, which 'make' installs"
    )


def test_request_asks_what_another_implementation_asks(
    nights: Nights, records: Path, service: Service, rfc3161: Any
) -> None:
    nonces = set()
    for day in (1, 2, 3):
        close(nights, day)
        record = (records / f"{day:08}.json").read_bytes()
        sent = service.requests_to(ROUTE)[-1].body
        ours = rfc3161._rust.parse_timestamp_request(sent)
        builder = rfc3161.TimestampRequestBuilder().data(record)
        theirs = builder.hash_algorithm(rfc3161.HashAlgorithm.SHA256).build()
        assert ours.as_bytes() == sent
        assert ours.message_imprint.hash_algorithm == theirs.message_imprint.hash_algorithm
        assert ours.message_imprint.message == theirs.message_imprint.message
        for name in ("version", "policy", "cert_req"):
            assert getattr(ours, name) == getattr(theirs, name)
        nonces.add(ours.nonce)
    assert len(nonces) == 3
    assert min(nonces) > 0


def test_another_implementation_accepts_the_token_for_this_record_alone(
    nights: Nights, records: Path, service: Service, authority: Authority, rfc3161: Any
) -> None:
    close(nights, 1)
    request = rfc3161._rust.parse_timestamp_request(service.requests_to(ROUTE)[-1].body)
    builder = rfc3161.VerifierBuilder.from_request(request)
    verifier = builder.add_root_certificate(load_pem_x509_certificate(authority.ca.read_bytes())).build()
    token = rfc3161.decode_timestamp_response((records / "00000001.tsr").read_bytes())
    record = (records / "00000001.json").read_bytes()
    assert verifier.verify_message(token, record)
    with pytest.raises(rfc3161.VerificationError, match="Mismatch between messages"):
        verifier.verify_message(token, record + b" ")


@pytest.mark.parametrize(
    "answer",
    [
        Reply(500),
        Reply(302, headers={"Location": "/sign"}),
        Reply(body=b"<html>"),
        Raw(b"", reset=True),
        Hang(),
        Drip(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", every=0.05, times=400),
        Reply(body=b"x" * (1 << 19)),
    ],
    ids=["500", "redirect", "page", "reset", "silence", "drip", "large"],
)
def test_night_is_closed_without_an_authority_and_the_next_one_fills_the_gap(
    nights: Nights,
    records: Path,
    service: Service,
    authority: Authority,
    verify: Verify,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: Any,
) -> None:
    monkeypatch.setattr(timestamps, "TIMEOUT_SECONDS", 0.2)
    service.on(ROUTE, answer)
    with caplog.at_level(logging.WARNING):
        close(nights, 1)
    (warning,) = [line for line in caplog.messages if "timestamp" in line]
    assert warning.startswith("Record 1 of the evidence has no timestamp: ")
    assert not list(records.glob("*.tsr"))
    assert words(verify()[1]) == ["CHAINED"]
    monkeypatch.undo()
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__TIMESTAMP_URL", f"{service.url}/sign")
    service.on(ROUTE, authority.answer)
    close(nights, 2)
    code, output = verify()
    assert (code, words(output)) == (0, ["TIMESTAMPED"] * 2), output


def test_gaps_are_filled_until_time_is_over(
    nights: Nights, records: Path, service: Service, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    service.on(ROUTE, Reply(500))
    for day in (1, 2, 3):
        close(nights, day)
    clock = iter([0.0, 59.0, 61.0, 62.0, 63.0])
    monkeypatch.setattr(timestamps, "monotonic", lambda: next(clock))
    service.on(ROUTE, authority.answer)
    monkeypatch.setattr(timestamps, "fetch", lambda url, digest: authority.sign_digest(digest.hex()))
    close(nights, 4)
    assert [path.name for path in records.glob("*.tsr")] == ["00000004.tsr"]


def test_closing_again_does_not_sign_again(nights: Nights, records: Path, service: Service) -> None:
    close(nights, 1)
    token = (records / "00000001.tsr").read_bytes()
    close(nights, 1)
    assert len(service.requests_to(ROUTE)) == 1
    assert (records / "00000001.tsr").read_bytes() == token


def test_token_for_another_hash_is_not_stored(
    nights: Nights, records: Path, service: Service, authority: Authority
) -> None:
    service.on(ROUTE, Reply(body=authority.sign_digest("0" * 64)))
    close(nights, 1)
    assert not list(records.glob("*.tsr"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda query, reply: query,
        lambda query, reply: b"x" + reply,
        lambda query, reply: reply + b"x",
        lambda query, reply: reply[:-1],
        lambda query, reply: reply + b"x" * (1 << 30 >> 13),
        lambda query, reply: gzip.compress(reply),
        lambda query, reply: reply.replace(b"\x30\x03\x02\x01\x00", b"\x30\x03\x02\x01\x02", 1),  # rejected
        lambda query, reply: reply.replace(bytes.fromhex("2a864886f70d010702"), bytes(9), 1),
        lambda query, reply: b"\x30\x84\xff\xff\xff\xff" + query + reply,
        lambda query, reply: b"\x30",
    ],
    ids=["echo", "before", "after", "cut", "large", "gzip", "rejected", "other-kind", "endless", "short"],
)
def test_answer_that_is_not_a_token_is_not_stored(
    nights: Nights,
    records: Path,
    service: Service,
    authority: Authority,
    spoil: Callable[[bytes, bytes], bytes],
) -> None:
    service.on(ROUTE, lambda request: Reply(body=spoil(request.body, authority.sign(request.body))))
    close(nights, 1)
    assert not list(records.glob("*.tsr"))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:1] + bytes([len(body) - 5]) + body[2:-3],
        lambda body: body[:-4] + b"\x99" + body[-3:],
    ],
    ids=["without its certificate", "with another nonce"],
)
def test_token_that_was_not_asked_for_is_not_stored(
    nights: Nights, records: Path, service: Service, authority: Authority, change: Callable[[bytes], bytes]
) -> None:
    service.on(ROUTE, lambda request: Reply(body=authority.sign(change(request.body))))
    close(nights, 1)
    assert len(service.requests_to(ROUTE)) == 1
    assert not list(records.glob("*.tsr"))


def test_login_of_the_authority_is_not_logged(
    nights: Nights, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = service.url.replace("127.0.0.1", "ada:s3cret-word@127.0.0.1")
    for path, port in (("/sign?apikey=s3cret-word", url), ("/", "http://ada:s3cret-word@127.0.0.1:1")):
        monkeypatch.setenv("AIRFLOW__COMPLIANCE__TIMESTAMP_URL", f"{port}{path}")
        service.on(ROUTE, Reply(401))
        close(nights, 1)
    assert service.received[-1].headers["authorization"].startswith("Basic ")
    assert len([line for line in caplog.messages if "has no timestamp" in line]) == 2
    assert "s3cret" not in caplog.text


def test_rewritten_chain_does_not_match_its_timestamps(nights: Nights, records: Path, verify: Verify) -> None:
    close(nights, 1)
    close(nights, 2)
    rewrite(records / "00000001.json", closed_at="2020-01-01T00:00:00+00:00")
    first = hashlib.sha256((records / "00000001.json").read_bytes()).hexdigest()
    rewrite(records / "00000002.json", previous={"number": 1, "sha256": first})
    assert verify("--since", "2020-01-01")[0] == 0  # by itself it is consistent
    code, output = verify()
    assert (code, words(output)) == (1, ["CHAINED"] * 2)
    assert output.count("is not of this record, or its signer not of") == 2


def test_records_without_any_token_are_found(nights: Nights, records: Path, verify: Verify) -> None:
    close(nights, 1)
    close(nights, 2)
    (records / "00000002.tsr").unlink()
    assert verify()[0] == 0  # the authority may have been down
    (records / "00000001.tsr").unlink()
    code, output = verify()
    assert (code, "no record has a timestamp" in output) == (1, True)
    assert verify("--since", "2026-01-01")[0] == 0


def test_token_of_another_authority_is_found(
    nights: Nights, records: Path, verify: Verify, tmp_path: Path
) -> None:
    sha256 = close(nights, 1)
    (records / "00000001.tsr").write_bytes(Authority(tmp_path / "other").sign_digest(sha256))
    code, output = verify()
    assert (code, words(output)) == (1, ["CHAINED"])


@pytest.mark.parametrize("token", [b"", b"0", b"\x30\x80" * 1000, b"x" * (1 << 20)])
def test_damaged_token_is_found(nights: Nights, records: Path, verify: Verify, token: bytes) -> None:
    close(nights, 1)
    (records / "00000001.tsr").write_bytes(token)
    code, output = verify()
    assert (code, words(output)) == (1, ["CHAINED"])


def test_time_in_the_unsigned_part_of_a_token_is_not_believed(
    nights: Nights, records: Path, verify: Verify
) -> None:
    close(nights, 1)
    path = records / "00000001.tsr"
    token = path.read_bytes().partition(b"\x30\x03\x02\x01\x00")[2]
    forged = b"\nTime stamp: Jan  1 00:00:00 2020 GMT\nTSA: DirName:/CN=Forged\n"
    text = b"\x30" + bytes([len(forged) + 2]) + b"\x0c" + bytes([len(forged)]) + forged
    status = b"\x30" + bytes([len(text) + 3]) + b"\x02\x01\x00" + text
    path.write_bytes(b"\x30\x82" + (len(status) + len(token)).to_bytes(2, "big") + status + token)
    assert "2020" in openssl("ts", "-reply", "-in", str(path), "-text")
    code, output = verify()
    assert (code, "2020-01-01" in output, "Forged" in output) == (0, False, False), output
    assert words(output) == ["TIMESTAMPED"]


def test_without_openssl_nothing_is_known(
    nights: Nights, verify: Verify, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    close(nights, 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, output = verify()
    assert (code, "openssl" in output, words(output)) == (2, True, ["CHAINED"])


def test_certificate_must_be_a_file(verify: Verify, records: Path, nights: Nights) -> None:
    close(nights, 1)
    for call in (
        lambda: verify("--ca", "nowhere.pem"),
        lambda: verifier.main([str(records), "--ca", "no.pem"]),
    ):
        with pytest.raises(SystemExit) as ended:
            call()
        assert ended.value.code == 2


def test_nothing_is_asked_without_the_option(
    nights: Nights, records: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW__COMPLIANCE__TIMESTAMP_URL")
    close(nights, 1)
    assert (service.received, list(records.glob("*.tsr"))) == ([], [])
