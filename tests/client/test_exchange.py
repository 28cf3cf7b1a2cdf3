"""Every decision of an exchange, as tables without I/O."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider import exceptions as exc
from airflow_provider.client import endpoints
from airflow_provider.client.exchange import Done, Exchange, Retry, ThrottlePause
from airflow_provider.client.http.wire import Call, Failure, FailureKind, HttpResponse
from airflow_provider.client.profile import Profile
from airflow_provider.client.tokens import AccessToken, TokenCache
from tests.support.clock import ManualClock
from tests.support.values import UUID, settings_for

SETTINGS = settings_for("https://api.example.com/x", token_url="https://id.example/token")
TOKEN = AccessToken(SecretStr("the-token"))
READ = endpoints.get_status(UUID)
CANCEL = endpoints.cancel(UUID)
SUBMIT = endpoints.submit_url("https://example.com")
LOGIN: Call[Any] = Call(
    "POST", "https://id.example/token", form={"a": "b"}, parse=lambda r: r.status, authorized=False
)


def exchange(
    call: Call[Any], clock: ManualClock | None = None, pause: ThrottlePause | None = None, **changes: Any
) -> Exchange[Any]:
    settings = settings_for("https://api.example.com/x", token_url="https://id.example/token", **changes)
    return Exchange(
        call, settings, pause or ThrottlePause(), clock=clock or ManualClock(), jitter=lambda: 1.0
    )


def response(status: int, body: bytes = b"{}", **headers: str) -> HttpResponse:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status, {"content-length": "2", **given}, body, "https://api.example.com/x")


@pytest.mark.parametrize(
    ("call", "outcome", "verdict"),
    [
        (READ, response(199), exc.ComplianceProtocolError),
        (READ, response(200), Done),
        (READ, response(299), Done),
        (READ, response(300), exc.ComplianceProtocolError),
        (READ, response(303), Done),
        (READ, response(303, b"<html>", content_type="text/html"), Done),  # a page beside it does not matter
        (READ, response(302), exc.ComplianceProtocolError),
        (READ, response(304), exc.ComplianceProtocolError),
        (READ, response(400), exc.ComplianceRefusedError),
        (READ, response(401), Retry),
        (READ, response(403), exc.ComplianceRefusedError),
        (READ, response(404), exc.ComplianceNotFoundError),
        (READ, response(408), Retry),
        (READ, response(410), exc.ComplianceNotFoundError),
        (READ, response(418), exc.ComplianceRefusedError),
        (READ, response(429), Retry),
        (READ, response(500), Retry),
        (READ, response(503), Retry),
        (READ, response(503, retry_after="1"), Retry),
        (READ, response(599), Retry),
        (READ, response(999), Retry),
        (READ, Failure(FailureKind.NOT_CONNECTED), Retry),
        (READ, Failure(FailureKind.TIMED_OUT), Retry),
        (READ, Failure(FailureKind.BROKEN), Retry),
        (READ, Failure(FailureKind.TLS), exc.ComplianceTlsError),
        (READ, Failure(FailureKind.TOO_LARGE), exc.ComplianceProtocolError),  # a retry would be as large
        (CANCEL, response(404), exc.ComplianceNotFoundError),  # a gateway may have answered: a poll tells
        (SUBMIT, response(200, b'{"uuid": "u"}'), Done),
        (SUBMIT, response(202, b'{"uuid": "u"}'), Done),
        (SUBMIT, response(202), exc.ComplianceProtocolError),
        (SUBMIT, response(303), exc.ComplianceUncertainError),
        (SUBMIT, response(103), exc.ComplianceUncertainError),
        (READ, response(103), exc.ComplianceProtocolError),
        (SUBMIT, response(401), Retry),
        (SUBMIT, response(408), exc.ComplianceUncertainError),
        (SUBMIT, response(409), exc.ComplianceRefusedError),
        (SUBMIT, response(429), Retry),
        (SUBMIT, response(500), exc.ComplianceUncertainError),
        (SUBMIT, response(503), exc.ComplianceUncertainError),
        (SUBMIT, response(503, retry_after="1"), Retry),
        (SUBMIT, Failure(FailureKind.NOT_CONNECTED), Retry),
        (SUBMIT, Failure(FailureKind.TIMED_OUT), exc.ComplianceUncertainError),
        (SUBMIT, Failure(FailureKind.BROKEN, "Connection reset by peer"), exc.ComplianceUncertainError),
        (SUBMIT, Failure(FailureKind.TOO_LARGE), exc.ComplianceUncertainError),
        (SUBMIT, Failure(FailureKind.TLS), exc.ComplianceTlsError),
        (LOGIN, response(401), exc.ComplianceRefusedError),
    ],
    ids=lambda value: getattr(value, "method", None) or str(getattr(value, "status", value))[:60],
)
def test_the_verdict_on_each_outcome(call: Call[Any], outcome: Any, verdict: type) -> None:
    one = exchange(call)
    one.next_request(TOKEN)
    if issubclass(verdict, Exception):
        with pytest.raises(verdict):
            one.evaluate(outcome)
    else:
        assert isinstance(one.evaluate(outcome), verdict)


@pytest.mark.parametrize("call", [READ, LOGIN])
def test_an_outage_of_what_has_worked_does_not_blame_the_connection(call: Call[Any]) -> None:
    one = exchange(call, max_retries=0)
    # It may have worked in another process, such as the previous attempt.
    with pytest.raises(exc.ComplianceConnectionError, match=r"is correct and reachable"):
        one.evaluate(Failure(FailureKind.NOT_CONNECTED))
    one.has_worked = True
    with pytest.raises(exc.ComplianceConnectionError, match="It worked before: the service"):
        one.evaluate(Failure(FailureKind.NOT_CONNECTED))


def test_an_answer_without_a_marked_end_that_makes_no_sense_is_asked_for_again() -> None:
    cut = HttpResponse(200, {}, b'{"uu', "https://api.example.com")
    one = exchange(READ, max_retries=1)
    assert isinstance(one.evaluate(cut), Retry)
    with pytest.raises(exc.ComplianceProtocolError):
        one.evaluate(cut)
    with pytest.raises(exc.ComplianceProtocolError, match="accepted the submit"):
        exchange(SUBMIT).evaluate(HttpResponse(202, {}, b"", "https://api.example.com"))


def test_a_login_carries_no_token_and_goes_to_its_own_address() -> None:
    request = exchange(LOGIN, idp_subject=UUID).next_request(None)
    assert request.url == "https://id.example/token"
    assert request.body == b"a=b"
    assert not {"Authorization", "IDP_SUBJECT"} & set(request.headers)


def test_back_off_doubles_up_to_half_a_minute() -> None:
    one = exchange(READ, backoff=1.0, max_retries=100, retry_seconds=1e9)
    delays = []
    for _ in range(20):
        one.evaluate(response(500))
        delays.append(one.delay())
    assert delays[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert max(delays) == 30


def test_repeats_end_with_the_time() -> None:
    clock = ManualClock()
    one = exchange(READ, clock, backoff=1.0, max_retries=100, retry_seconds=10)
    for _ in range(3):
        assert isinstance(one.evaluate(Failure(FailureKind.BROKEN)), Retry)
        clock.now += one.delay()
    with pytest.raises(exc.ComplianceConnectionError):
        one.evaluate(Failure(FailureKind.BROKEN))


def test_a_pause_is_shared_by_all_and_spread() -> None:
    clock, pause = ManualClock(), ThrottlePause()
    one, other = exchange(READ, clock, pause), exchange(SUBMIT, clock, pause)
    one.evaluate(response(429, retry_after="20"))
    assert one.delay() == other.delay() == 21
    one.evaluate(response(500))  # pauses no other call
    other.evaluate(response(503, retry_after="5"))
    assert other.delay() == 21
    clock.now += 30
    assert one.delay() == other.delay() == 0


def test_basic_credentials_are_quoted_and_blanked_out_in_an_echo() -> None:
    call: Call[Any] = Call(
        "POST", "https://id.example", parse=str, basic_auth=("a:b", SecretStr("p w")), authorized=False
    )
    one = exchange(call, client_secret=SecretStr("p w & more"))
    header = one.next_request(None).headers["Authorization"]
    assert header == f"Basic {b64encode(b'a%3Ab:p+w').decode()}"
    echo = b"Authorization: Basic " + b64encode(b"partner:p+w+%26+more")
    with pytest.raises(exc.ComplianceRefusedError) as caught:
        one.evaluate(response(400, b'{"message": "' + echo + b'"}'))
    assert echo.decode()[30:-4] not in f"{caught.value}{caught.value.body}"


FORGED = "bad\r\n[2026] INFO - all is well \x1b[2K \u202e."


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("call", [READ, SUBMIT, LOGIN, next(TokenCache(SETTINGS).renew())])
def test_no_answer_can_forge_a_line_of_the_log(
    call: Call[Any], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    body = json.dumps({"error": FORGED, "error_description": FORGED, "message": FORGED}).encode()
    for content in (body, FORGED.encode()):
        headers = {"location": FORGED, "content-type": FORGED, "content-length": "1"}
        one = exchange(call, max_retries=1)
        one.next_request(TOKEN)
        answer = HttpResponse(status, headers, content, "https://id.example/token")
        with pytest.raises(exc.ComplianceError) as caught:
            all(one.evaluate(answer) for _ in range(3))
        assert str(caught.value).isprintable()
        assert getattr(caught.value, "body", "").isprintable()
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("https://api.example.com/jobs/1", "/jobs/1"),
        ("https://api.example.com:443/jobs/1", "/jobs/1"),
        ("https://api.example.com:8443/jobs/1", None),
        ("http://api.example.com/jobs/1", None),
        ("https://api.example.com.evil.example/jobs/1", None),
        ("//api.example.com/jobs/1", "/jobs/1"),
        ("/jobs/1", "/jobs/1"),
        ("https://api.example.com:99999/jobs/1", None),
    ],
)
def test_a_location_is_used_only_on_the_same_scheme_host_and_port(location: str, path: str | None) -> None:
    answer = HttpResponse(202, {"location": location}, b"", "https://api.example.com/x")
    assert answer.location == path


def test_a_pause_that_ends_with_the_time_for_retries_is_waited_for() -> None:
    pause = ThrottlePause()
    pause.extend(1010.0)
    assert exchange(READ, pause=pause, retry_seconds=10.0).delay() == pytest.approx(11.0)  # spread by 1 s
    with pytest.raises(exc.ComplianceThrottledError) as error:
        exchange(READ, pause=pause, retry_seconds=9.9).delay()
    assert (error.value.status, error.value.retry_after) == (429, 10.0)


@pytest.mark.parametrize(
    ("call", "setting"),
    [
        (READ, "the base URL (with port) of the Airflow connection 'compliance_default'"),
        (LOGIN, "the extra 'token_url' of the Airflow connection 'compliance_default'"),
    ],
)
def test_an_error_names_the_setting_to_check(call: Call[Any], setting: str) -> None:
    error = exchange(call).stream_error(Failure(FailureKind.BROKEN, "reset"))
    assert f"(reset), the response is incomplete. Check that {setting} is correct" in str(error)
    assert type(error) is exc.ComplianceConnectionError
    for kind in (FailureKind.UNREADABLE, FailureKind.TOO_LARGE):
        assert type(exchange(call).stream_error(Failure(kind))) is exc.ComplianceProtocolError
    with pytest.raises(exc.ComplianceTlsError, match=re.escape(f"Check {setting}, and the extra 'verify'")):
        exchange(call).evaluate(Failure(FailureKind.TLS))


def test_a_page_is_not_an_answer_of_the_service_unless_the_call_expects_one() -> None:
    with pytest.raises(exc.ComplianceProtocolError, match=r"HTML page.* Check the base URL"):
        exchange(READ).evaluate(response(200, b"<html>", content_type="text/html"))
    expecting: Call[Any] = Call("GET", "/x", parse=lambda answer: answer.body, allow_html=True)
    assert exchange(expecting).evaluate(response(200, b"<html>", content_type="text/html")) == Done(b"<html>")


def test_a_good_login_is_not_blamed_for_a_401() -> None:
    found = exchange(READ)
    found.has_worked = True
    found.next_request(TOKEN)
    assert found.evaluate(response(401)) == Retry()
    assert found.refused_token is TOKEN
    assert found.delay() == 0.0
    assert found.evaluate(response(401)) == Retry()
    assert found.delay() > 0


def test_a_throttling_pauses_all_for_an_hour_at_most() -> None:
    pause = ThrottlePause()
    with pytest.raises(exc.ComplianceThrottledError) as error:
        exchange(READ, pause=pause).evaluate(response(429, b'{"message": "slow down"}', retry_after="7200"))
    assert (pause.until, pause.count) == (1000.0 + 3600, 1)
    assert error.value.retry_after == 7200
    assert "(429, 'slow down')" in str(error.value)


class Form:
    content_type, length, content = "multipart/form-data; boundary=b", 123, None

    def chunks(self) -> Iterator[bytes]:
        yield b""


def test_a_request_says_what_it_sends_and_what_it_accepts() -> None:
    def headers(**options: Any) -> dict[str, str]:
        call: Call[Any] = Call("POST", "/x", parse=lambda answer: answer, **options)
        found = exchange(call, idp_subject="alice").next_request(TOKEN)
        assert (found.method, found.url) == ("POST", "https://api.example.com/x/x")
        return dict(found.headers)

    plain = headers(headers={"X-A": "b"})
    assert plain.pop("User-Agent").startswith("airflow-provider-compliance/")
    assert plain == {
        "Accept": "application/json, text/plain;q=0.9",
        "Accept-Encoding": "gzip",
        "Authorization": "Bearer the-token",
        "IDP_SUBJECT": "alice",
        "X-A": "b",
    }
    sent = ("Content-Type", "Content-Length")
    assert [headers(json={"a": "ä"}).get(name) for name in sent] == ["application/json", "15"]
    form = headers(form={"a": SecretStr("b c")})
    assert [form.get(name) for name in sent] == ["application/x-www-form-urlencoded", "5"]
    assert [headers(body=b"raw").get(name) for name in sent] == [None, "3"]
    assert [headers(body=Form()).get(name) for name in sent] == [Form.content_type, "123"]


def test_the_content_of_a_request_is_encoded() -> None:
    def body(**options: Any) -> Any:
        return exchange(Call("POST", "/x", parse=lambda answer: answer, **options)).next_request(None).body

    assert body(json={"a": 1}) == b'{"a": 1}'
    assert body(form={"a": SecretStr("b c"), "d": "&"}) == b"a=b+c&d=%26"
    assert body(body=b"raw") == b"raw"
    assert body() is None


@pytest.mark.parametrize(
    ("call", "outcome", "message"),
    [
        (READ, response(103), r"got only an interim response \(103\)"),
        (READ, response(302, location="/" + "y" * 300), r"was redirected \(302\) to '/y{198}…'. Redirects"),
        (READ, response(403), "'alice' may lack a role"),
        (READ, response(500, b'{"message": "down"}'), "500 Internal Server Error, 'down'"),
        (READ, Failure(FailureKind.BROKEN, "reset"), r"^GET https://api\.example.*broke \(reset\)\. Check"),
        (LOGIN, Failure(FailureKind.BROKEN), "^The token request to id.example: the connection broke"),
    ],
)
def test_an_error_says_what_happened(call: Call[Any], outcome: Any, message: str) -> None:
    with pytest.raises(exc.ComplianceError, match=message):
        exchange(call, max_retries=0).evaluate(outcome)


def test_a_retry_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "airflow_provider.client.exchange")
    found = exchange(READ, max_retries=7, backoff=1.0)
    found.has_worked, found.refused_token = True, TOKEN
    undelimited = HttpResponse(200, {}, b"{", "https://api.example.com/x")
    outcomes: list[HttpResponse | Failure] = [
        response(500),
        response(401),
        undelimited,
        response(429, retry_after="2"),
        Failure(FailureKind.BROKEN, "reset"),
    ]
    for outcome in outcomes:
        assert found.evaluate(outcome) == Retry()
    assert [each.partition(": ")[2] for each in caplog.messages] == [
        "500 Internal Server Error; retrying in 1.0 s (1 of 7).",
        "a fresh token was refused (401); retrying in 2.0 s (2 of 7).",
        "an invalid response; retrying in 4.0 s (3 of 7).",
        "throttled (429); retrying in 2.0 s (4 of 7).",
        "the connection broke (reset); retrying in 16.0 s (5 of 7).",
    ]


def test_calls_that_are_retried_together_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "airflow_provider.client.exchange")
    pause, clock = ThrottlePause(), ManualClock()
    calls = [Exchange(READ, SETTINGS, pause, clock=clock) for _ in range(3)]
    for call in calls * 2:
        call.evaluate(Failure(FailureKind.BROKEN, "reset"))
    assert [message.rpartition("(")[2] for message in caplog.messages] == ["1 of 5).", "2 of 5)."]
    Exchange(READ, SETTINGS, pause, clock=clock).evaluate(response(500))
    clock.now += 60
    Exchange(READ, SETTINGS, pause, clock=clock).evaluate(response(500))
    assert len(caplog.messages) == 4


def test_half_of_the_back_off_is_random() -> None:
    found = Exchange(READ, SETTINGS, ThrottlePause(), clock=ManualClock(), jitter=lambda: 0.0)
    found.evaluate(response(500))
    assert found.delay() == pytest.approx(0.0005)


def test_a_retry_just_in_time_is_made() -> None:
    found = exchange(READ, retry_seconds=10.0)
    assert found.evaluate(response(503, retry_after="10")) == Retry()
    with pytest.raises(exc.ComplianceThrottledError):
        exchange(READ, retry_seconds=10.0).evaluate(response(503, retry_after="11"))


def test_an_uncertain_submit_says_why_once() -> None:
    with pytest.raises(exc.ComplianceUncertainError) as error:
        exchange(SUBMIT).evaluate(response(302, location="/login"))
    assert str(error.value).count("https://api.example.com/x/api/v1/content-processing/url") == 1
    assert ".. The service may" not in str(error.value)


def test_answers_are_read_by_the_profile_of_the_connection() -> None:
    profile = Profile.parse({"status": {"done": "COMPLETED"}})
    one = exchange(READ, profile=profile)
    one.next_request(TOKEN)
    done = one.evaluate(response(200, json.dumps({"uuid": UUID, "status": "done"}).encode()))
    assert isinstance(done, Done)
    assert done.value.status == "COMPLETED"
