"""Redact logins, signatures and tokens in addresses, wherever these are stored or shown."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote, unquote

from airflow_provider.client.http.masking import mask

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_MAY_HAVE_SECRETS = re.compile(r"[?#;@%]|eyJ")
_STAND_IN = re.compile(r"redacted(?:-[0-9a-f]{12})?")
_REDACTED = re.compile(r"\bsignature=redacted(?=[&#]|$)|\bredacted-[0-9a-f]{12}(?=[@?&#;/]|$)")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PARAMETER = re.compile(r"[?&#;~]([^?&#;~=/\s]+)=[^&#;\s]")
_LOGIN = re.compile(r"://[^/?#@\s]+@")
_JWT = re.compile(r"(?<![\w-])(?=[\w-]+\.[\w-])[\w-]*?\beyJ[\w-]{8,}\.")  # in linear time
_IN_TEXT = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s'\"<>`]*[^\s'\"<>`.,;:!?)\]}]")
_ESCAPED_AMPERSAND = re.compile(r"&(?:amp|#38|#x26);|\\u0026", re.IGNORECASE)
MIN_SECRET_CHARS = 8  # of what is masked in other texts; shorter values may be anything

# Names of parameters with a secret: as a whole, as one of several words, and at the end of glued words. They
# are compared in lower case and without separators, so that `X-Api-Key`, `api_key` and `apikey` are the same.
_SECRET_NAMES = frozenset({
    "key", "sid", "sig", "sign", "otp", "samlresponse", "samlrequest", "assertion", "tempauth", "ticket",
})  # fmt: skip
_SECRET_WORDS = frozenset({
    "sig", "signature", "token", "secret", "password", "passwd", "passphrase", "passcode", "pass", "pwd",
    "jwt", "auth", "authorization", "credential", "credentials", "hmac", "session",
})  # fmt: skip
_SECRET_ENDINGS = (
    "signature", "token", "secret", "password", "passwd", "passphrase", "jwt", "sessionid", "sessid",
    "credential", "credentials", "hmac", "apikey", "accesskey", "accesskeyid", "secretkey", "privatekey",
    "subscriptionkey", "functionskey", "accountkey", "sharedkey", "authkey", "appkey", "consumerkey",
    "rlkey", "resourcekey", "keypairid", "accessid",
)  # fmt: skip

# The parameters of presigned URLs. Only together do they mean a signature: `sp`, `policy` and `expires` alone
# may be anything.
_SIGNED_PREFIXES = ("xamz", "xgoog", "xoss")
_AZURE = frozenset({
    "sig", "sv", "ss", "srt", "sp", "st", "se", "spr", "sip", "si", "sr", "sdd", "ses", "skoid", "sktid",
    "skt", "ske", "sks", "skv", "skdutid", "saoid", "suoid", "scid",
})  # fmt: skip
_CDN = frozenset({
    "signature", "expires", "policy", "keypairid", "hashalgorithm", "keyname", "awsaccesskeyid",
    "googleaccessid", "ossaccesskeyid", "securitytoken", "xamzsecuritytoken",
})  # fmt: skip


def redact(address: str) -> str:
    """Return an address as it is stored and shown: without logins, signatures and tokens.

    A digest takes the place of a login or a token, because it may decide which document there is. The
    signature of a presigned URL does not: it only grants access to what the rest of the URL names, for some
    hours. So it is left out with all its parameters, and a document that is signed again each night is the
    same document every night. `redact_all` keeps the rare addresses apart that differ in nothing else.

    In a storage URI, `conn_id@` is an Airflow connection, which is no secret.
    """
    return _Redaction(address).result


def redact_all(addresses: Iterable[str]) -> dict[str, str]:
    """Return different addresses by their redacted ones, which are different, too.

    Addresses that would have the same redacted one get a digest of the whole address instead. A redacted
    address, as from a manifest, does not count beside the address that it was made of.
    """
    groups: dict[str, list[str]] = {}
    for each in dict.fromkeys(addresses):
        groups.setdefault(redact(each), []).append(each)
    named: dict[str, str] = {}
    for name, group in groups.items():
        usable = [each for each in group if not is_redacted(each)]
        if len(usable) > 1:
            named |= {_Redaction(each, is_unique=True).result: each for each in usable}
        else:
            named.setdefault(name, (usable or group)[0])
    return named


def redact_text(text: str) -> str:
    """Redact all addresses in a text, such as an error that quotes one."""

    def redact_match(match: re.Match[str]) -> str:
        found = _ESCAPED_AMPERSAND.sub("&", match[0])
        redacted = redact(found)
        return match[0] if redacted == found else redacted

    return _IN_TEXT.sub(redact_match, text)


def mask_address(text: str, address: str) -> str:
    """Redact a text about an address, also where it quotes a part of the address only."""
    redaction = _Redaction(address)
    forms = (form for each in redaction.secrets for form in (each, unquote(each), quote(each, safe="")))
    secrets = dict.fromkeys(forms)
    return mask(redact_text(text), [each for each in secrets if len(each) >= MIN_SECRET_CHARS])


def is_redacted(address: str) -> bool:
    """Tell whether something is missing in an address, so that nobody can use it."""
    return "://" in address and _REDACTED.search(address) is not None


class _Redaction:
    """The redaction of one address.

    :param is_unique: stand-ins are made of the whole address, not of what they stand for
    :ivar secrets: what was removed
    """

    def __init__(self, address: str, *, is_unique: bool = False) -> None:
        self.result = address
        self.secrets: list[str] = []
        self._suffix = f"-{_digest(address)}" if is_unique else ""
        scheme, separator, rest = address.partition("://")
        if separator and _SCHEME.fullmatch(scheme) and _MAY_HAVE_SECRETS.search(rest):
            self.result = f"{scheme}://{self._redact(rest, is_web=scheme.lower() in ('http', 'https'))}"

    def _redact(self, rest: str, *, is_web: bool) -> str:
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        if "@" not in authority and "@" in rest and re.search(r":(?!\d*$)", authority.rpartition("]")[2]):
            authority = rest[: rest.rindex("@") + 1]  # a password with a slash in it
        path = rest.removeprefix(authority)
        login, at, host = authority.rpartition("@")
        if login and (is_web or ":" in unquote(login)):
            # Not the password, if there is a user: it would be easy to guess from a digest.
            user, _, password = unquote(login).partition(":")
            self.secrets.append(password)
            login = self._stand_in(login, user or password)
        path, hash_sign, fragment = path.partition("#")
        path, question_mark, query = path.partition("?")
        return "".join(
            (
                f"{login}{at}{host}",
                self._redact_path(path),
                question_mark,
                self._redact_query(query),
                hash_sign,
                self._redact_query(fragment),
            )
        )

    def _redact_path(self, path: str) -> str:
        path = _LOGIN.sub(lambda match: f"://{self._stand_in(match[0][3:-1])}@", path)
        segments = []
        for segment in path.split("/"):
            name, *parameters = segment.split(";")  # matrix parameters
            segments.append(";".join([self._redact_nested(name), *map(self._redact_parameter, parameters)]))
        return "/".join(segments)

    def _redact_query(self, query: str) -> str:
        parameters = query.split("&")
        is_signed = _signed_names({_normalize(each.partition("=")[0]) for each in parameters})
        kept, has_signature = [], False
        for each in parameters:
            name, _, value = each.partition("=")
            if is_signed(_normalize(name)):
                has_signature = True
                if _is_secret(name):
                    self.secrets.append(value)
            else:
                kept.append(self._redact_parameter(each))
        if has_signature:
            kept.append(f"signature=redacted{self._suffix}")
        return "&".join(kept)

    def _redact_parameter(self, parameter: str) -> str:
        name, equals, value = parameter.partition("=")
        if value and _is_secret(name):
            return f"{name}={self._stand_in(value)}"
        return f"{name}={self._redact_nested(value, '?')}" if equals else self._redact_nested(name)

    def _redact_nested(self, value: str, start: str = "") -> str:
        """Redact a value that contains another address, parameters or a token.

        :param start: `?` if the value may be a parameter itself
        """
        decoded = _decode(value)
        names = _PARAMETER.findall(start + decoded)
        if not (any(map(_is_secret, names)) or _LOGIN.search(decoded) or _JWT.search(decoded)):
            return value
        nested = _Redaction(decoded)
        self.secrets += nested.secrets
        return self._stand_in(value, nested.result)

    def _stand_in(self, value: str, meaning: str = "") -> str:
        """Return what takes the place of a value.

        :param meaning: what of the value decides which document there is; by default all of it
        """
        if self._suffix:
            return f"redacted{self._suffix}"
        if _STAND_IN.fullmatch(value):
            return value
        self.secrets.append(value)
        return f"redacted-{_digest(meaning or value)}"


def _signed_names(names: set[str]) -> Callable[[str], bool]:
    """Return which of these parameters belong to the signature of a presigned URL."""
    prefixes = tuple(each for each in _SIGNED_PREFIXES if f"{each}signature" in names)
    signed: frozenset[str] = frozenset()
    if "sig" in names and not names.isdisjoint({"sv", "se"}):
        signed |= _AZURE
    if "signature" in names and len(names & _CDN) > 1:
        # A policy is a part of the signature where there is a key pair, and may be a document elsewhere.
        signed |= _CDN if "keypairid" in names else _CDN - {"policy"}
    return lambda name: name in signed or (bool(prefixes) and name.startswith(prefixes))


def _is_secret(name: str) -> bool:
    normal = _normalize(name)
    if normal in _SECRET_NAMES or normal.endswith(_SECRET_ENDINGS):
        return True
    return any(word.lower() in _SECRET_WORDS for word in _WORD.findall(_decode(name)))


def _normalize(name: str) -> str:
    return re.sub("[^a-z0-9]", "", _decode(name).removeprefix("amp;").lower())


def _decode(text: str) -> str:
    """Undo percent-encoding, even if it was done more than once."""
    for _ in range(3):
        text, before = unquote(text), text
        if text == before:
            break
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
