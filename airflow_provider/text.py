"""Text without secrets and control characters, for all that is logged, raised, stored or shown."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from html.entities import codepoint2name
from urllib.parse import quote_plus, unquote

MIN_MASKED_CHARS = 4  # of a known secret; a shorter one would match in any text
MIN_QUOTED_CHARS = 8  # of a part of an address; a shorter one may be anything
MIN_BASE64_CHARS = 8
MIN_CODE_CHARS = 6  # of `?code=`; a shorter one is a language or a country
MAX_NESTED = 3  # addresses inside one another; what is deeper is replaced as a whole

_BREAKS = re.compile(r"[^\S ]+")  # all whitespace except the space
_JOINERS = "\u200c\u200d"  # invisible, but part of words and emoji
_BACKSLASHES = r"\\{%d,15}"  # four nested escapes; unbounded, a long run of them would take quadratic time

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_WEB = frozenset({"http", "https", "ftp", "ftps", "ws", "wss"})  # elsewhere, `name@` is an Airflow connection
_STAND_IN = re.compile(r"redacted(?:-[0-9a-f]{12})?")
_REDACTED = re.compile(r"\bsignature=redacted(?=[&#]|$)|\bredacted-[0-9a-f]{12}(?=[@?&#;/]|$)")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PARAMETER = re.compile(r"[?&#;~]([^?&#;~=/\s]+)=([^?&#;~\s]+)")
_LOGIN = re.compile(r"://[^/?#@\s]+@")
_DOTTED = re.compile(r"[\w.-]{12,}")  # what a JWT may be in
_JWT_START = re.compile(r"\beyJ")
_ESCAPED_AMPERSAND = re.compile(r"&(?:amp|#38|#x26);|\\u0026", re.IGNORECASE)

# Secrets in a text.
_MAY_HAVE_SECRETS = re.compile(r"[=@:%;>'\"]|eyJ|bearer|basic|negotiate|sharedkey|aws4", re.I)
_ADDRESS = re.compile(  # also escaped, as in JSON or in a parameter, and without a scheme
    r"""(?xi) (?: \b[a-z][a-z0-9+.-]{0,20} (?: : | %(?:25){0,3}3a ) | (?<![\w:/\\%]) )
    (?: \\{0,7}/ | %(?:25){0,3}2f ){2} [^\s'"<>`]* [^\s'"<>`.,;:!?)\]}]"""
)
_GLUED = re.compile(r"(?<=[,;|@])(?=[A-Za-z][A-Za-z0-9+.-]{0,20}://)")  # where another address starts
# A name and what separates it from its value: `name=`, `"name": "`, `('name', '`, `<name>`.
_FIELD = re.compile(
    r"""(?xi) (?: (?P<mark> [?&\#;] | [(\[]\s?\\{0,7}["'] ) | (?P<tag> (?:<|&lt;)(?:\w{1,30}:)? ) )?
    (?<![\w./-]) (?P<name>[a-z][\w.-]{0,60})
    (?(tag) (?:\s[^<>]{0,200})? (?:>|&gt;)
    | (?P<equals> %3d | (?:\\{0,7}["'])?\s{0,3}(?:=>?|[:,])\s{0,3} ) (?: [bru]?(?P<quote>\\{0,7}["']) )? )"""
)
_QUOTE = re.compile(r"""(?<!\\)(\\*)(["'])(?!\w)""")  # no letter follows the one that ends a value
_UNQUOTED = re.compile(r"""[^\s&;<>"',]+(?:["',](?=\w)[^\s&;<>"',]*)*""")
_CLOSING_TAG = re.compile("</|&lt;/")
_LINE_BREAK = re.compile("[\r\n]")
_PLAIN_WORD = re.compile(r"[A-Z]?[a-z]+[.,:;!?]*(?:\s|$)")
_HEADER = re.compile(
    "(?i)(?P<line>(?:proxy-)?authorization|(?:set-)?cookie2?)|x-[a-z-]{0,30}(?:key|token|secret|auth)"
)
_CREDENTIALS = re.compile(
    r"""(?x) \b(?P<scheme>(?i:bearer|basic|negotiate|sharedkey(?:lite)?|aws4-hmac-sha256))
    (?P<space>\s+|%20|\+) (?!(?:realm|error|scope|charset)\w*=|[A-Z]?[a-z]+[.,:;!?]*(?:\s|$))
    [\w.~+/=:%-]{4,}"""
)
_BARE_LOGIN = re.compile(
    r"(?<![\w/.%+-])(?!mailto:)([\w.%+-]{1,64}):(?!//)[^\s/@:'\"<>\\]{3,128}@(?=[\w.\[])"
)

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
_PASSWORDS = ("password", "passwd", "passphrase", "passcode", "pwd")

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


def one_line(text: str) -> str:
    r"""Replace line breaks by spaces and escape control characters, so that nothing can forge a log line.

    Invalid UTF-8 in a file name becomes `\xe4`.
    """
    return text if text.isprintable() else "".join(map(_escape, _BREAKS.sub(" ", text)))


def _escape(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode()


def sanitize(value: object, limit: int = 500) -> str:
    """Return any value as one line of at most `limit` characters, without secrets.

    It is cut first, so that the cost does not grow with the value.
    """
    try:
        text = value if isinstance(value, str) else "" if value is None else str(value)
    except ValueError:  # an integer with thousands of digits
        text = "(too long)"
    start = text[: 2 * limit]
    is_cut = len(text) > len(start)
    if is_cut and (end := max(start.rfind(" "), start.rfind("\n"))) > limit:
        start = start[:end]  # without a word that was cut: half a secret may not look like one
    line = " ".join(one_line(redact_text(start)).split())
    return line if len(line) <= limit and not is_cut else line[: limit - 1] + "…"


def redact(address: str) -> str:
    """Return an address as it is stored and shown: without logins, signatures and tokens.

    A digest takes the place of a login or a token, because it may decide which document there is. The
    signature of a presigned URL does not: it only grants access to what the rest of the URL names, for some
    hours. So it is left out with all its parameters, and a document that is signed again each night is the
    same document every night. `redact_all` keeps the rare addresses apart that differ in nothing else.

    In a storage URI, `conn_id@` is an Airflow connection, which is not a secret.
    """
    return _Redaction(address).result


def redact_all(addresses: Iterable[str]) -> dict[str, str]:
    """Return different addresses by their redacted ones, which are different, too.

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


def is_redacted(address: str) -> bool:
    """Return whether something is missing in an address, so that it can't be used."""
    return "://" in address and _REDACTED.search(address) is not None


def redact_text(text: str) -> str:
    """Redact a text: the addresses in it, and what looks like a secret by its name or its form."""
    if not _MAY_HAVE_SECRETS.search(text):
        return text
    text = _mask_fields(_ADDRESS.sub(_redact_match, text))
    text = _CREDENTIALS.sub(r"\g<scheme>\g<space>***", text)
    text = _BARE_LOGIN.sub(r"\1:***@", text)
    return _mask_jwts(text)


def mask(text: str, secrets: Iterable[str]) -> str:
    """Mask known secrets, even if escaped for HTML, URLs, JSON or Python, or encoded in base64."""
    for secret in secrets:
        if len(secret) >= MIN_MASKED_CHARS:
            text = _spellings_of(secret).sub("***", text)
    return text


def mask_address(text: str, address: str) -> str:
    """Redact a text about an address, also where it quotes a part of the address only."""
    secrets = dict.fromkeys(map(unquote, _Redaction(address).secrets))
    return mask(redact_text(text), [secret for secret in secrets if len(secret) >= MIN_QUOTED_CHARS])


def _redact_match(match: re.Match[str]) -> str:
    found = _ESCAPED_AMPERSAND.sub("&", match[0]).replace("\\", "")
    if "//" not in found:
        found = _decode(found)
    if "://" in found:
        redacted = "".join(map(redact, _GLUED.split(found)))
    else:
        redacted = redact(f"https:{found}").removeprefix("https:")
    return match[0] if redacted == found else redacted


def _mask_fields(text: str) -> str:
    """Mask the values of all names that mean a secret; what was masked is not searched again."""
    kept, start, at = [], 0, 0
    missing: set[str] = set()
    while found := _FIELD.search(text, at):
        at = found.end("name")
        if _is_secret_field(text, found) and (end := _value_end(text, found, missing)) > found.end():
            kept += [text[start : found.end()], "***"]
            start = at = end
    return "".join([*kept, text[start:]])


def _is_secret_field(text: str, field: re.Match[str]) -> bool:
    name, equals, quote, at = field["name"], field["equals"] or "", field["quote"], field.end()
    mark = field["mark"] or " "
    if mark in "?&#;":  # a query, where also short names such as `key` and `code` mean a secret
        value = _UNQUOTED.match(text, at, at + MIN_CODE_CHARS + 1)  # more of it decides nothing
        is_secret = _is_secret(name, value[0] if value else "")
    else:
        is_secret = _has_secret_word(name)
    if not is_secret or text.startswith("***", at) or _STAND_IN.match(text, at):
        return False
    if ":" in equals and not quote:  # a sentence, such as `token: expired`, unless it is a password
        is_certain = _HEADER.fullmatch(name) or _normalize(name).endswith(_PASSWORDS)
        return bool(is_certain or not _PLAIN_WORD.match(text, at))
    return "," not in equals or bool(quote and mark[0] in "([")


def _value_end(text: str, field: re.Match[str], missing: set[str]) -> int:
    """Return where a value ends; if its end is missing, that is the end of the line.

    :param missing: tags and quotes that no later one closes, so that they are searched for only once
    """
    at, opening, found = field.end(), "<" if field["tag"] else field["quote"], None
    if opening and opening not in missing:
        found = _CLOSING_TAG.search(text, at) if field["tag"] else _closing_quote(text, at, opening)
        if not found:
            missing.add(opening)
    elif not opening and not ((header := _HEADER.fullmatch(field["name"])) and header["line"]):
        value = _UNQUOTED.match(text, at)
        return value.end() if value else at
    found = found or _LINE_BREAK.search(text, at)
    return found.start() if found else len(text)


def _closing_quote(text: str, at: int, quote: str) -> re.Match[str] | None:
    level = len(quote)  # 1, or 2, 4, 8 with nested escapes; a quote inside of the value has more
    closing = (one for one in _QUOTE.finditer(text, at) if one[2] == quote[-1])
    return next((one for one in closing if len(one[1]) % (2 * level) == level - 1), None)


def _mask_jwts(text: str) -> str:
    return _DOTTED.sub(_mask_jwt, text) if "eyJ" in text else text


def _mask_jwt(match: re.Match[str]) -> str:
    start = 0
    for part in match[0].split(".")[:-1]:
        if (found := _JWT_START.search(part)) and len(part) - found.start() > 10:
            return f"{match[0][: start + found.start()]}***"
        start += len(part) + 1
    return match[0]


class _Redaction:
    """The redaction of one address.

    :param is_unique: stand-ins are made of the whole address, not of what they stand for
    :param depth: how many addresses this one is inside of
    :ivar secrets: what was removed
    """

    def __init__(self, address: str, *, is_unique: bool = False, depth: int = 0) -> None:
        self.result = address
        self._depth = depth
        self.secrets: list[str] = []
        self._suffix = f"-{_digest(address)}" if is_unique else ""
        scheme, separator, rest = address.partition("://")
        if separator and _SCHEME.fullmatch(scheme) and re.search(r"[?#;@%]|eyJ", rest):
            self.result = f"{scheme}://{self._redact(rest, is_web=scheme.lower() in _WEB)}"

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
        parameters = query.split("&")
        is_signed = _signed_names({_normalize(parameter.partition("=")[0]) for parameter in parameters})
        kept, has_signature = [], False
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if is_signed(_normalize(name)):
                has_signature = True
                if _is_secret(name, value):
                    self.secrets.append(value)
            else:
                kept.append(self._redact_parameter(parameter))
        if has_signature:
            kept.append(f"signature=redacted{self._suffix}")
        return "&".join(kept)

    def _redact_parameter(self, parameter: str) -> str:
        name, equals, value = parameter.partition("=")
        if value and _is_secret(name, value):
            return f"{name}={self._stand_in(value)}"
        return f"{name}={self._redact_nested(value, '?')}" if equals else self._redact_nested(name)

    def _redact_nested(self, value: str, start: str = "") -> str:
        """Redact a value that contains another address, parameters or a token.

        :param start: `?` if the value may be a parameter itself
        """
        decoded = _decode(value)
        has_secret = any(_is_secret(name, given) for name, given in _PARAMETER.findall(start + decoded))
        if not (has_secret or _LOGIN.search(decoded) or _mask_jwts(decoded) != decoded):
            return value
        if self._depth == MAX_NESTED:
            return self._stand_in(value)
        nested = _Redaction(decoded, depth=self._depth + 1)
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
    prefixes = tuple(prefix for prefix in _SIGNED_PREFIXES if f"{prefix}signature" in names)
    signed: frozenset[str] = frozenset()
    if "sig" in names and not names.isdisjoint({"sv", "se"}):
        signed |= _AZURE
    if "signature" in names and len(names & _CDN) > 1:
        # A policy is a part of the signature where there is a key pair, and may be a document elsewhere.
        signed |= _CDN if "keypairid" in names else _CDN - {"policy"}
    return lambda name: name in signed or (bool(prefixes) and name.startswith(prefixes))


def _is_secret(name: str, value: str) -> bool:
    """Return whether a parameter of a query is a secret."""
    normal = _normalize(name)
    is_code = normal == "code" and len(value) >= MIN_CODE_CHARS  # of a login, or of a function of Azure
    return normal in _SECRET_NAMES or is_code or _has_secret_word(name)


@lru_cache(maxsize=1024)
def _has_secret_word(name: str) -> bool:
    return _normalize(name).endswith(_SECRET_ENDINGS) or any(
        word.lower() in _SECRET_WORDS for word in _WORD.findall(_decode(name))
    )


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


@lru_cache(maxsize=64)
def _spellings_of(secret: str) -> re.Pattern[str]:
    runs = re.findall(r"(?s)\\+|.", secret)
    return re.compile("|".join(["".join(map(_spellings, runs)), *_in_base64(secret)]))


def _spellings(run: str) -> str:
    """Build a pattern for all escapes of a character, or of backslashes in a row, even nested ones."""
    letter, count = run[0], len(run)
    if letter.isascii() and letter.isalnum():
        return letter
    code, utf8 = ord(letter), letter.encode("utf-8", "surrogatepass")
    utf16 = letter.encode("utf-16-be", "surrogatepass").hex()
    forms = [
        rf"&(?:amp;)*#0*{code};",
        rf"&(?:amp;)*#[xX]0*(?i:{code:x});",
        "".join(rf"{_BACKSLASHES % 1}u(?i:{utf16[at : at + 4]})" for at in range(0, len(utf16), 4)),
    ]
    for encoded in (utf8, *([bytes([code])] if 127 < code < 256 else [])):
        forms += ["".join(rf"%(?:25)*(?i:{byte:02x})" for byte in encoded)]
        forms += ["".join(rf"{_BACKSLASHES % 1}x(?i:{byte:02x})" for byte in encoded)]
    if name := "apos" if letter == "'" else codepoint2name.get(code):
        forms.append(rf"&(?:amp;)*{name};")
    if letter == " ":
        forms.append(r"\+")
    if letter == "\\":  # one pattern for all: there are too many ways to share a long run among several
        return rf"(?:(?:{'|'.join(forms)}){{{count}}}|\\{{{count},{16 * count}}})"
    # A backslash escape; a latin-1 byte in a text that was decoded as UTF-8.
    forms.append(rf"{_BACKSLASHES % 0}{re.escape(letter)}" if code < 128 else re.escape(letter))
    if 127 < code < 256:
        forms.append(chr(0xDC00 + code))
    return f"(?:{'|'.join(forms)})"


def _in_base64(secret: str) -> Iterator[str]:
    """Build patterns for a secret inside a larger base64-encoded text."""
    for raw in {secret, quote_plus(secret, errors="replace")}:
        data = raw.encode("utf-8", "surrogatepass")
        for before in range(3):
            encoded = base64.b64encode(bytes(before) + data).decode()
            # The characters at both ends also hold bits of their neighbors.
            core = encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
            if len(core) >= MIN_BASE64_CHARS:
                yield re.sub(r"[+/]", lambda sign: {"+": r"[+\-]", "/": "[/_]"}[sign[0]], core)
