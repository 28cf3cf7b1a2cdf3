"""Addresses without secrets: what is removed, what stays, and which documents stay the same."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from airflow_provider.redaction import addresses
from airflow_provider.redaction.addresses import MAX_ADDRESS_CHARS, is_redacted, redact, redact_all
from airflow_provider.redaction.text import mask, mask_address, one_line, redact_text, sanitize
from tests.support.effort import ends, growth

S3 = (
    "https://b.s3.eu-central-1.amazonaws.com/doc.pdf?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Credential=AKIASECRET%2F{night}%2Feu-central-1%2Fs3%2Faws4_request&X-Amz-Date={night}T000000Z"
    "&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Security-Token=SECRET{night}"
    "&X-Amz-Signature=SECRET{night}0f1e2d3c&versionId=7"
)
PRESIGNED = {
    "Amazon": S3,
    "Amazon in lower case": S3.lower().replace("secret", "SECRET"),
    "Amazon, version 2": "https://b.s3.amazonaws.com/d.pdf?AWSAccessKeyId=AKIASECRET&Signature=SECRET{night}%3D&Expires={night}",
    "CloudFront": "https://d1.cloudfront.net/d.pdf?page=2&Expires={night}&Signature=SECRET~{night}_&Key-Pair-Id=KSECRET",
    "CloudFront with a policy": "https://d1.cloudfront.net/d.pdf?Policy=SECRET{night}&Signature=SECRET~{night}&Key-Pair-Id=KSECRET",
    "Azure": (
        "https://a.blob.core.windows.net/c/d.pdf?sv=2024-11-04&ss=b&srt=o&sp=r&st={night}&se={night}T00%3A00Z"
        "&spr=https&sig=SECRET{night}%2B%3D"
    ),
    "Azure with a user delegation": (
        "https://a.dfs.core.windows.net/c/d.pdf?skoid=SECRET&sktid=SECRET&skt={night}&ske={night}&sks=b"
        "&skv=2024-11-04&sv=2024-11-04&se={night}&sr=b&sp=r&sig=SECRET{night}"
    ),
    "Google": (
        "https://storage.googleapis.com/b/d.pdf?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=SECRET%40p"
        "&X-Goog-Date={night}&X-Goog-Expires=900&X-Goog-SignedHeaders=host&X-Goog-Signature=SECRET{night}"
    ),
    "Google, version 2": "https://storage.googleapis.com/b/d.pdf?GoogleAccessId=SECRET@p&Expires={night}&Signature=SECRET{night}",
    "Alibaba": "https://b.oss.example/d.pdf?OSSAccessKeyId=SECRET&Expires={night}&Signature=SECRET{night}",
    "inside another URL": "https://viewer.example/?url=" + quote(S3, safe="{}") + "&page=1",
}  # fmt: skip
SECRETS = [
    "https://example.com/a?token=SECRET",
    "https://example.com/a?ACCESS_TOKEN=SECRET&x=1",
    "https://example.com/a?accessToken=SECRET",
    "https://example.com/a?accesstoken=SECRET",
    "https://example.com/a?x=1&api_key=SECRET",
    "https://example.com/a?X-Api-Key=SECRET",
    "https://example.com/a?apikey=SECRET",
    "https://example.com/a?key=SECRET",
    "https://example.com/a?%74oken=SECRET",
    "https://example.com/a?%2574oken=SECRET",
    "https://example.com/a?next=%2525252Fb%25253Ftoken%25253DSECRET",
    "https://example.com/a?client_secret=SECRET",
    "https://example.com/a?password=SECRET",
    "https://example.com/a?sig=SECRET",
    *(f"https://example.com/a?{name}=SECRET" for name in ("pw", "bearer", "creds", "passkey", "code")),
    "https://example.com/a?signature=SECRET",
    "https://example.com/a?X-Amz-Security-Token=SECRET",
    "https://example.com/a?x=1;token=SECRET",
    "https://example.com/a?x=1&amp;token=SECRET",
    "https://example.com/a?hdnea=exp=1~acl=/*~hmac=SECRET",
    "https://example.com/a?next=/b?token=SECRET",
    "https://example.com/a?next=%2Fb%3Ftoken%3DSECRET",
    "https://example.com/a?next=https://user:SECRET@example.com/",
    "https://example.com/a?jwt=SECRET",
    "https://example.com/a?x=eyJhbGciOiJIUzI1NiJ9.SECRET.SECRET",
    "https://example.com/eyJhbGciOiJIUzI1NiJ9.SECRET.SECRET/a",
    "https://example.com/a;jsessionid=SECRET?x=1",
    "https://example.com/a;v=1;token=SECRET/b",
    "https://example.com/a#access_token=SECRET&expires_in=1",
    "https://example.com/a#/route?token=SECRET",
    "https://example.com/proxy/https://user:SECRET@example.com/",
    "https://user:SECRET@example.com/a",
    "https://SECRET@example.com/a",
    "https://:SECRET@example.com/a",
    "https://user:SE/SECRET@example.com/a",
    "HTTPS://user:SECRET@example.com:8443/a",
    "https://user:SECRET@[::1]/a",
    "s3://AKIA:SECRET@bucket/a.pdf",
    "s3://AKIA%3ASECRET@bucket/a.pdf",
    "s3://AKIA:SE/SECRET@bucket/a.pdf",
    "abfs://container/a.pdf?sig=SECRET",
]
HARMLESS = [
    "https://example.com",
    "https://example.com/?author=a&authority=b&authuser=0&signal=c&design=d&assign=e&keyword=f&passport=g",
    "https://example.com/?policy=privacy&expires=never&sp=1&st=2&se=3&monkey=4&tokenizer=5&compass=6&bypass=7",
    "https://example.com/?sort_key=a&primary_key=2&code=de&state=open&page=2&lang=de&q=a@b&v=1.2#section-2",
    "https://example.com/legal/password-policy/token/secret?x",
    "https://example.com:8443/@user/a@b",
    "https://[::1]:8080/a@b",
    "https://example.com/a%20b%3Fc.pdf",
    "s3://aws_default@bucket/dt=2026-01-01/session=5/Offer #1 (50%).pdf",
    "s3://bucket/a;b&c.pdf",
    "abfs://container@account.dfs.core.windows.net/a.pdf",
    "file:///data/a.pdf",
    "/data/https:/a?token=b.pdf",
    "C:\\data\\a@b.pdf",
    "",
    "a\udce4.pdf",
]


@pytest.mark.parametrize("address", SECRETS)
def test_a_secret_is_replaced_by_a_digest_of_it(address: str) -> None:
    redacted = redact(address)
    assert "SECRET" not in redacted
    assert redacted != redact(address.replace("SECRET", "OTHER1")) or "user:" in address or "AKIA" in address
    assert redact(redacted) == redacted
    assert is_redacted(redacted)
    assert not is_redacted(address)


@pytest.mark.parametrize("address", HARMLESS)
def test_harmless_address_stays(address: str) -> None:
    assert redact(address) == address
    assert redact_text(address) == address or address.startswith("/")  # in a text, a path is not an address
    assert not is_redacted(address)


@pytest.mark.parametrize("address", PRESIGNED.values(), ids=list(PRESIGNED))
def test_a_document_that_is_signed_again_every_night_is_the_same_document(address: str) -> None:
    tonight, tomorrow = (address.format(night=night) for night in ("20260101", "20260102"))
    redacted = redact(tonight)
    assert redacted == redact(tomorrow) == redact(redacted)
    assert "SECRET" not in redacted
    assert "20260101" not in redacted
    assert is_redacted(redacted)
    another = (
        tonight.replace("d.pdf", "e.pdf").replace("doc.pdf", "e.pdf").replace("doc.pdf".upper(), "e.pdf")
    )
    assert redact(another) != redacted


def test_parameters_that_choose_a_version_stay() -> None:
    assert redact(S3.format(night="1")) == (
        "https://b.s3.eu-central-1.amazonaws.com/doc.pdf?versionId=7&signature=redacted"
    )


def test_digest_of_a_login_is_of_its_user_not_of_its_password() -> None:
    first, other, without_user = (redact(f"https://{login}@h/") for login in ("ada:1", "bob:1", ":1"))
    assert first == redact("https://ada:2@h/")
    assert len({first, other, without_user}) == 3


def test_different_addresses_of_one_run_are_never_mistaken_for_each_other() -> None:
    addresses = [
        *(S3.format(night=night) for night in ("1", "2", "3")),
        *(f"https://ada:{number}@h/" for number in range(3)),
        *(f"https://h/?token={number}" for number in range(3)),
        "https://h/a",
        "s3://conn@bucket/a.pdf",
    ]
    named = redact_all([*addresses, *addresses])
    assert list(named.values()) == addresses
    assert all("AKIA" not in name and "ada" not in name for name in named)
    assert redact_all(reversed(addresses)) == named
    assert redact_all(named) == {name: name for name in named}
    alone = redact_all(addresses[:1])
    assert list(alone) == [redact(addresses[0])]


def test_a_redacted_address_does_not_count_beside_its_original() -> None:
    one, two = S3.format(night="1"), S3.format(night="2")
    assert redact_all([redact(one), one]) == redact_all([one, redact(one)]) == {redact(one): one}
    both = redact_all([one, two])
    assert redact_all([*both, one, two]) == redact_all([one, two, *both]) == both


@pytest.mark.parametrize(
    "text",
    [
        "GET {} returned 403.",
        "'{}' is gone",
        '{{"url": "{}"}}',
        '<a href="{}">',
        "({}), then s3://conn@bucket/key",
    ],
)
@pytest.mark.parametrize("ampersand", ["&", "&amp;", "\\u0026", "&#38;"])
def test_an_address_in_a_text_is_redacted(text: str, ampersand: str) -> None:
    redacted = redact_text(text.format(S3.format(night="SECRET").replace("&", ampersand)))
    assert "SECRET" not in redacted
    assert "https://b.s3.eu-central-1.amazonaws.com/doc.pdf?versionId=7&signature=redacted" in redacted


@pytest.mark.parametrize(
    "text",
    [
        "/doc.pdf?X-Amz-Signature=SECRET10f1e2d3c",
        "signature SECRET10f1e2d3c does not match",
        "credential AKIASECRET/1/eu-central-1/s3/aws4_request",
        "AKIASECRET%2F1%2Feu-central-1%2Fs3%2Faws4_request",
    ],
)
def test_a_part_of_an_address_in_a_text_about_it_is_masked(text: str) -> None:
    assert "SECRET" not in mask_address(text, S3.format(night="1"))
    assert mask_address("Timed out after 3600 s.", S3.format(night="1")) == "Timed out after 3600 s."


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (5, "5"),
        ("a\n b\t c", "a b c"),
        ("M\udce4rz\x00 \U0001f468\u200d\U0001f469", r"M\xe4rz\x00 " + "\U0001f468\u200d\U0001f469"),
        ("x" * 30, "x" * 19 + "\u2026"),
        ("y" * 25 + " https://user:SECRET@example.com", "y" * 19 + "\u2026"),
    ],
)
def test_any_value_becomes_a_short_line(value: object, shown: str) -> None:
    assert sanitize(value, 20) == shown


def test_a_number_that_is_too_long_to_print_is_not_printed() -> None:
    assert sanitize(10**5000) == "(too long)"


def test_a_word_that_is_cut_is_left_out() -> None:
    text = "password=" + "p" * 900 + " and https://user:SECRET@example.com/" + "x" * 90
    assert sanitize(text) == "password=*** and\u2026"


HOSTILE = [
    "a.", "http://", "a;", "%25", "://a@", "eyJ-", "\\", "&amp;", "a=", "bearer  ", "a:b", '"a":"', "a ",
    "<a:", 'password="', "password='\n", 'token="redacted', "('password','", "<password>", "<password a",
    "cookie:a;", r'"password":"\"', r"https:\/\/", "%3A%2F%2F", "//a:b@", "&code=", "token: a\n", "%2525",
    "http://a/?x=", "http://u:p@h/?x=", "<password>\n", 'password="a\n', "?code=a",
]  # fmt: skip


@pytest.mark.parametrize("start", ["", "https://h/?a="])
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_read_in_linear_time(piece: str, start: str) -> None:
    text = start + piece * (200_000 // len(piece))
    with ends():
        redact_text(text)
        if start:
            redact(text)
            mask_address(text, "https://user:p%40ssword!@h/?token=!abcdefghijk")
            mask(text, ["!s3cret wörd\\x", "&am p;", "%25pw%"])
            one_line(text)


@pytest.mark.parametrize(
    ("piece", "masked"),
    [
        ("token=a'b ", "token=*** "),
        ("<password>\n", "<password>\n"),
        ("<password>a\n", "<password>***\n"),
        ('password="a\n', 'password="***\n'),
    ],
)
def test_a_megabyte_of_fields_is_read_in_linear_time(piece: str, masked: str) -> None:
    count = 1_000_000 // len(piece)
    with ends():
        assert redact_text(piece * count) == masked * count


@pytest.mark.parametrize("piece", ['password="', "a=", "<password>", "token: a\n", "http://u:p@h/?x="])
def test_steps_grow_with_the_text_and_no_faster(piece: str) -> None:
    assert growth(lambda count: redact_text(piece * count), 300, 3000) < 11


@pytest.mark.parametrize("glue", [",", ";", "|", "@"])
def test_addresses_without_a_blank_between_them_are_redacted_each(glue: str) -> None:
    shown = redact_text(f"http://u:password1@h:80{glue}http://v:password2@h2{glue}https://h3/?token=abcdefgh")
    assert not re.search("password|abcdefgh", shown)


@pytest.mark.parametrize("count", [2, 4, 5, 400])
def test_a_secret_is_redacted_however_deep_its_address_is_nested(count: int) -> None:
    address = "http://a/?x=" * count + "http://b/?token=abcdefgh"
    redacted = redact(address)
    assert re.fullmatch(r"http://a/\?x=redacted-[0-9a-f]{12}", redacted)
    assert redact(redacted) == redacted != redact(address + "i")
    assert redact_text(f"see {address}") == f"see {redacted}"


def test_an_address_of_megabytes_is_replaced_as_a_whole() -> None:
    address = "http://u:SECRET@a/?x=" * 100_000
    redacted = redact(address)
    assert re.fullmatch(r"http://redacted-[0-9a-f]{12}", redacted)
    assert redact(redacted) == redacted != redact(address + "i")
    assert is_redacted(redacted)
    assert redact_text(f"see {address}") == f"see {redacted}"
    longest = "http://a/" + "b" * (MAX_ADDRESS_CHARS - 9)
    assert redact(longest) == longest


def test_backslashes_of_a_secret_are_masked_in_linear_time() -> None:
    secret = "\\" * 9 + "x!"
    with ends():
        assert mask("\\" * 100_000, [secret]) == "\\" * 100_000
    for text in (secret, secret.replace("\\", r"\\"), secret.replace("\\", "%5C")):
        assert mask(f"<{text}>", [secret]) == "<***>"


@pytest.mark.parametrize(
    "text",
    [
        "the token: expired",
        "must not contain credentials: use login and password",
        "the extras 'client_secret', 'verify' are unknown",
        "password: *** and token=redacted-0123456789ab",
        "Authorization: *** Retry later.",
        "a // b@c",
    ],
)
def test_a_sentence_about_secrets_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "login", [r":\/\/u:SECRET@h", "%3A%2F%2Fu%3ASECRET%40h", "%253A%252F%252FSECRET%2540h"]
)
def test_login_in_an_escaped_address_is_redacted(login: str) -> None:
    assert "SECRET" not in redact_text(f"next https{login} and more")


@pytest.mark.parametrize("secret", ["ada%3ASECRET%40host", "password%3DSECRET"])
def test_secret_beside_a_decoded_address_is_masked(secret: str) -> None:
    assert "SECRET" not in redact_text(f"https%3A%2F%2Fu%3Apw%40h%2F%20{secret}")


@pytest.mark.parametrize("name", ["Authorization: Token", "Set-Cookie: sid=a;", "X-Api-Key:", "password:"])
def test_any_word_is_a_secret_in_some_fields(name: str) -> None:
    assert "hunter" not in redact_text(f"sent {name} hunter\nand more")


@pytest.mark.parametrize("prefix", ["", "x-", "a.", "-"])
def test_token_behind_other_characters_is_redacted(prefix: str) -> None:
    assert "SECRET" not in redact(f"https://h/?a={prefix}eyJhbGciOiJIUzI1NiJ9.SECRET.SECRET")


@pytest.mark.parametrize("name", sorted({*addresses._SECRET_WORDS, *addresses._SECRET_ENDINGS}))
def test_each_name_of_a_secret_is_found_in_a_text(name: str) -> None:
    assert redact_text(f"It said {name}=hunter22.") == f"It said {name}=***"


def test_a_name_with_separators_is_found_in_a_text() -> None:
    assert redact_text("It said Sec-Ret_K.ey: hunter22") == "It said Sec-Ret_K.ey: ***"


@pytest.mark.parametrize(
    "scheme", ["Basic", "BAS\u0130C", "bas\u0131c", "NEGOT\u0130ATE", "Bearer", "SharedKeyLite", "ba\u017fic"]
)
def test_credentials_are_masked_however_their_scheme_is_spelled(scheme: str) -> None:
    assert redact_text(f"sent {scheme} dXNlcjpwYXNz") == f"sent {scheme} ***"
