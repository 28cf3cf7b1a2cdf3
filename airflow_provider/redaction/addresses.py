"""Addresses without secrets, as they are stored and shown."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote

MIN_CODE_CHARS = 6  # for `?code=`; a shorter one is a language or a country
MAX_NESTED = 3  # addresses inside one another; deeper ones are replaced as a whole
MAX_ADDRESS_CHARS = 16_384  # no server takes more; a longer one is replaced as a whole

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_WEB = frozenset({"http", "https", "ftp", "ftps", "ws", "wss"})  # elsewhere, `name@` is an Airflow connection
# Nothing that could be a secret, or only an Airflow connection: so are most addresses in object stores.
_PLAIN = re.compile(
    r"[^?#;@%]*|(?!(?:https?|ftps?|wss?):)[a-z][a-z0-9+.-]*://[\w.-]+@[^?#;@%&~]*", re.IGNORECASE
)
_STAND_IN = re.compile(r"redacted(?:-[0-9a-f]{12})?")
_REDACTED = re.compile(r"\bsignature=redacted(?=[&#]|$)|\bredacted-[0-9a-f]{12}(?=[@?&#;/]|$)")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PARAMETER = re.compile(r"[?&#;~]([^?&#;~=/\s]+)=([^?&#;~\s]+)")
_LOGIN = re.compile(r"://[^/?#@\s]+@")
_DOTTED = re.compile(r"[\w.-]{12,}")  # texts that may contain a JWT
_JWT_START = re.compile(r"\beyJ")

# Names of parameters with a secret: as a whole, as one of several words, and at the end of glued words. They
# are compared in lower case and without separators, so that `X-Api-Key`, `api_key` and `apikey` are the same.
_SECRET_NAMES = frozenset({
    "key", "sid", "sig", "sign", "otp", "samlresponse", "samlrequest", "assertion", "tempauth", "ticket",
    "pw", "cred", "creds",
})  # fmt: skip
_SECRET_WORDS = frozenset({
    "sig", "signature", "token", "secret", "password", "passwd", "passphrase", "passcode", "passkey", "pass",
    "pwd", "jwt", "auth", "authorization", "bearer", "credential", "credentials", "hmac", "session", "cookie",
})  # fmt: skip
_SECRET_ENDINGS = (
    "signature", "token", "secret", "password", "passwd", "passphrase", "passkey", "jwt", "sessionid",
    "sessid", "credential", "credentials", "hmac", "apikey", "accesskey", "accesskeyid", "secretkey",
    "privatekey", "subscriptionkey", "functionskey", "accountkey", "sharedkey", "authkey", "appkey",
    "consumerkey", "rlkey", "resourcekey", "keypairid", "accessid",
)  # fmt: skip
# One of these is in each of those words and endings.
SECRET_PARTS = (
    b"sig", b"token", b"secret", b"pass", b"pwd", b"jwt", b"auth", b"bearer", b"credential", b"hmac", b"sess",
    b"cookie", b"key", b"accessid",
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

    A digest takes the place of a login or a token, because it may identify the document. The
    signature of a presigned URL does not: it only grants access to the object that the rest names, for some
    hours. So it is left out with all its parameters, and a document that is signed again each night is the
    same document every night. `redact_all` keeps the rare addresses apart that differ in nothing else.

    In a storage URI, `conn_id@` is an Airflow connection, which is not a secret.
    """
    return address if _is_plain(address) else _Redaction(address).result


def _is_plain(address: str) -> bool:
    return len(address) <= MAX_ADDRESS_CHARS and "eyJ" not in address and bool(_PLAIN.fullmatch(address))


def redact_all(addresses: Iterable[str]) -> dict[str, str]:
    """Return different addresses by their redacted forms, which also differ.

    Addresses that would have the same redacted one get a digest of the whole address instead. A redacted
    address, as from a manifest, does not count beside the address that it was made of.
    """
    groups: dict[str, list[str]] = {}
    for address in dict.fromkeys(addresses):
        groups.setdefault(redact(address), []).append(address)
    named: dict[str, str] = {}
    for name, group in groups.items():
        usable = [address for address in group if not is_redacted(address)]
        if len(usable) > 1:
            named |= {_Redaction(address, is_unique=True).result: address for address in usable}
        else:
            named.setdefault(name, (usable or group)[0])
    return named


def secrets_in(address: str) -> list[str]:
    """Return what `redact` removes from an address, decoded."""
    return [] if _is_plain(address) else list(dict.fromkeys(map(unquote, _Redaction(address).secrets)))


def is_redacted(address: str) -> bool:
    """Return whether something is missing in an address, so that it can't be used."""
    return "://" in address and _REDACTED.search(address) is not None


class _Redaction:
    """The redaction of one address.

    :param is_unique: stand-ins are made of the whole address, not of the part that they replace
    :param depth: how many addresses this one is inside of
    :ivar secrets: removed parts
    """

    def __init__(self, address: str, *, is_unique: bool = False, depth: int = 0) -> None:
        self.result = address
        self._depth = depth
        self.secrets: list[str] = []
        self._suffix = f"-{_digest(address)}" if is_unique else ""
        scheme, separator, rest = address.partition("://")
        if not separator or not _SCHEME.fullmatch(scheme):
            return
        if len(address) > MAX_ADDRESS_CHARS:
            self.result = f"{scheme}://redacted-{_digest(address)}"
        else:
            self.result = f"{scheme}://{self._redact(rest, is_web=scheme.lower() in _WEB)}"

    def _redact(self, rest: str, *, is_web: bool) -> str:
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        if "@" not in authority and "@" in rest and re.search(r":(?!\d*$)", authority.rpartition("]")[2]):
            authority = rest[: rest.rindex("@") + 1]  # a password with a slash in it
        path = rest.removeprefix(authority)
        login, at, host = authority.rpartition("@")
        if login and (is_web or ":" in unquote(login)):
            # With a user, not the password: it would be easy to guess from a digest.
            user, _, password = unquote(login).partition(":")
            self.secrets.append(password)
            login = self._stand_in(login, user or password)
        path, hash_sign, fragment = path.partition("#")
        path, question_mark, query = path.partition("?")
        query, fragment = self._redact_query(query), self._redact_query(fragment)
        return f"{login}{at}{host}{self._redact_path(path)}{question_mark}{query}{hash_sign}{fragment}"

    def _redact_path(self, path: str) -> str:
        path = _LOGIN.sub(lambda match: f"://{self._stand_in(match[0][3:-1])}@", path)
        segments = []
        for segment in path.split("/"):
            name, *parameters = segment.split(";")  # matrix parameters
            segments.append(";".join([self._redact_nested(name), *map(self._redact_parameter, parameters)]))
        return "/".join(segments)

    def _redact_query(self, query: str) -> str:
        named = [(_normalize(part.partition("=")[0]), part) for part in query.split("&")]
        signed = _signed_names({name for name, _ in named})
        kept = [self._redact_parameter(part) for name, part in named if name not in signed]
        if len(kept) < len(named):
            kept.append(f"signature=redacted{self._suffix}")
            secret = [part for name, part in named if name in signed and is_secret(name, "")]
            self.secrets += [part.partition("=")[2] for part in secret]
        return "&".join(kept)

    def _redact_parameter(self, parameter: str) -> str:
        name, equals, value = parameter.partition("=")
        if value and is_secret(name, value):
            return f"{name}={self._stand_in(value)}"
        return f"{name}={self._redact_nested(value, '?')}" if equals else self._redact_nested(name)

    def _redact_nested(self, value: str, start: str = "") -> str:
        """Redact a value that contains another address, parameters or a token.

        :param start: `?` if the value may be a parameter itself
        """
        decoded = decode(value)
        has_secret = any(is_secret(name, given) for name, given in _PARAMETER.findall(start + decoded))
        if not (has_secret or _LOGIN.search(decoded) or mask_jwts(decoded) != decoded):
            return value
        if self._depth == MAX_NESTED:
            return self._stand_in(value)
        nested = _Redaction(decoded, depth=self._depth + 1)
        self.secrets += nested.secrets
        return self._stand_in(value, nested.result)

    def _stand_in(self, value: str, meaning: str = "") -> str:
        """Return the replacement of a value.

        :param meaning: the part of the value that identifies the document; by default all of it
        """
        if self._suffix:
            return f"redacted{self._suffix}"
        if _STAND_IN.fullmatch(value):
            return value
        self.secrets.append(value)
        return f"redacted-{_digest(meaning or value)}"


def _signed_names(names: set[str]) -> set[str]:
    """Return which parameters belong to the signature of a presigned URL with these."""
    prefixes = tuple(prefix for prefix in _SIGNED_PREFIXES if f"{prefix}signature" in names)
    signed = {name for name in names if name.startswith(prefixes)}
    if "sig" in names and not names.isdisjoint({"sv", "se"}):
        signed |= _AZURE
    if "signature" in names and len(names & _CDN) > 1:
        # A policy is part of the signature if a key pair is given; otherwise it may identify a document.
        signed |= _CDN if "keypairid" in names else _CDN - {"policy"}
    return signed


def is_secret(name: str, value: str) -> bool:
    """Return whether a parameter of a query is a secret."""
    normal = _normalize(name)
    is_code = normal == "code" and len(value) >= MIN_CODE_CHARS  # a login, or a function of Azure
    return normal in _SECRET_NAMES or is_code or has_secret_word(name)


@lru_cache(maxsize=1024)
def has_secret_word(name: str) -> bool:
    """Return whether a name means a secret, even outside of a query."""
    return _normalize(name).endswith(_SECRET_ENDINGS) or any(
        word.lower() in _SECRET_WORDS for word in _WORD.findall(decode(name))
    )


def _normalize(name: str) -> str:
    return re.sub("[^a-z0-9]", "", decode(name).removeprefix("amp;").lower())


def decode(text: str) -> str:
    """Undo percent-encoding, even if it was done more than once."""
    for _ in range(3):
        text, before = unquote(text), text
        if text == before:
            break
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def mask_jwts(text: str) -> str:
    """Mask what looks like a JWT."""
    return _DOTTED.sub(_mask_jwt, text) if "eyJ" in text else text


def _mask_jwt(match: re.Match[str]) -> str:
    start = 0
    for part in match[0].split(".")[:-1]:
        if (found := _JWT_START.search(part)) and len(part) - found.start() > 10:
            return f"{match[0][: start + found.start()]}***"
        start += len(part) + 1
    return match[0]
