"""Which credentials are found in texts, and by which form: plugins of `detect-secrets`, and ours for what it lacks.

Left out on purpose: the library's guesses by entropy, which take hashes, ids and images for credentials, and its
plugins for Cloudant, IBM Cloud and SoftLayer, whose expressions take minutes for a line of spaces (ASSIGNED finds most
of theirs). Where another plugin's expression was quadratic, or found something in hashes, Base64 or capitals, a bounded
one stands here instead. Every expression is linear.

To import this takes some tenths of a second, since the library brings its parts for the network along. Nothing here
uses those.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import BasePlugin, RegexBasedDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.private_key import PrivateKeyDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector


def _form(prefix: str, rest: str) -> re.Pattern[str]:
    """An expression for a literal prefix that no letter or digit precedes, and what follows it. The prefix stands first
    so that the search leaps to it.
    """
    literal = re.escape(prefix)
    return re.compile(f"{literal}(?<![A-Za-z0-9]{literal}){rest}", re.ASCII)


class _Form(RegexBasedDetector):
    """Credentials with a form of their own."""

    secret_type = "credential"
    denylist: Sequence[re.Pattern[str]] = ()

    def __init__(self, *denylist: re.Pattern[str]) -> None:
        self.denylist = denylist


class _Jwt(JwtTokenDetector):
    """Begins where a word begins, emphasized or not, which makes it linear."""

    def __init__(self) -> None:
        start = r"eyJ(?:(?<![\w-]eyJ)|(?<=[^\w-]_eyJ)|(?<=^_eyJ)|(?<=%[0-9A-Fa-f]{2}eyJ))"
        self.denylist = [re.compile(start + r"[\w=-]+\.[\w=-]+\.?[\w.+/=-]*?", re.ASCII)]


class _GitLabToken(GitLabTokenDetector):
    """Ends before any letter that is not of ASCII: not every script has spaces."""

    def __init__(self) -> None:
        self.denylist = [re.compile(expression.pattern, re.ASCII) for expression in GitLabTokenDetector.denylist]


class _PrivateKey(PrivateKeyDetector):
    """With the forms that have come since."""

    def __init__(self) -> None:
        newer = ("BEGIN ENCRYPTED PRIVATE KEY", "PuTTY-User-Key-File-3", "AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{58}")
        self.denylist = [*PrivateKeyDetector.denylist, *map(re.compile, newer)]


_TEMPLATE: Final = re.compile(
    r"^\$|\$[{(]|^%\w+%$|%[sdvr]\b|%\(|\{|<|>|\*{2}|x{4}|X{4}|\.{3}|[…•]|\byour[-_]", re.ASCII
)
"""Stands for a credential that is somewhere else, or for one that was masked."""

_PLACEHOLDERS: Final = frozenset(
    ("password", "passwd", "pass", "pwd", "secret", "token", "pw", "pswd", "redacted", "hidden", "changeme", "example")
)


def _is_placeholder(value: str) -> bool:
    return value.lower() in _PLACEHOLDERS or len(set(value)) == 1 or _TEMPLATE.search(value) is not None


class _UrlPassword(_Form):
    """Passwords in addresses that are no placeholders."""

    def analyze_string(self, string: str) -> Generator[str, None, None]:
        yield from (value for value in super().analyze_string(string) if not _is_placeholder(value))


_MARKS: Final = r"""["'`*_\]]{0,4}"""
_REMARK: Final = r"[ \t]{0,32}(?:\([^()\r\n]{1,32}\)[ \t]{0,4})?"
_WHOSE: Final = r"""(?:[ ](?:for|of|to|on|at)(?:[ ][^\s:=|"'`]{1,32}){1,4}?)?"""
_SEPARATOR: Final = rf"""{_MARKS}{_WHOSE}{_REMARK}(?:(?::=|=>|={{1,3}}|[:：])[ \t*_]{{0,32}}|(?:is|was)[ ](?=["'`]))"""
"""Between a name and its value, with the marks of Markdown and of code."""
_PROSE: Final = (
    rf"{_MARKS}(?:"
    rf"{_WHOSE}{_REMARK}"
    r"(?:(?:is|was|ist|war|lautet|est|es|é)(?:[ ](?:now|still|set[ ]to))?[ ]|[是为為は])[ \t*_]{0,4}"
    rf"""|{_REMARK}(?<=[ \t])(?=["'`]))"""
)
"""What tells less: a verb, or only the quotes around the value."""
_CELL: Final = re.compile(
    rf"{_MARKS}{_REMARK}\|[ \t*_]{{0,32}}(`?)([^\s\"'`<|]{{6,128}})[`*_]{{0,3}}[ \t]{{0,64}}(?:\||$)", re.M
)
"""The next cell of a table, when it holds one value."""
_LONGEST_BEFORE: Final = 128
"""How far before a name its line is looked at."""
_SPACE: Final = r"[ \t]{0,4}"
_VALUE: Final = r"""(["'`]?)([^\s"'`<]{6,128})"""
_PASSWORD_NAME: Final = (
    "(?:pass(?:word|wd|phrase)|[_-]pass(?![a-z])|pwd"
    "|passwort|kennwort|contrase[ñn]a|senha|mot de passe|пароль|密码|密碼|パスワード|ﾊﾟｽﾜｰﾄﾞ|비밀번호)"
)
_KEY_NAME: Final = (
    "(?:(?:api|access|auth|account|client|secret|private|signing|encryption|master|service)[_ -]?key"
    "|(?<!page)(?<!page[_ -])token|secret)"
)
_UUID_NAME: Final = (
    "(?:(?:(?<!public)(?<!public[_ -])api|access|auth|secret|private|signing|encryption|master|service)[_ -]?key"
    "|(?:api|access|auth|bearer|refresh|deploy|admin|acl|vault|consul|nomad|http|npm|heroku|snyk|ci|bot)[_ -]?token"
    "|(?:client|app|application|consumer|webhook|api|shared|oauth|auth|signing)[_ -]?secret)"
)
"""Not a bare token, key or secret: their UUIDs are mostly ids."""

_UUID: Final = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_IN_UUID: Final = re.compile("-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-")
_REFERENCE: Final = re.compile(
    rf"""
    [(\[/.~|=+\\]  # a path, a list, the rest of an operator
    | [A-Za-z][\w+.-]*:  # an address, or a name in a vault
    | [A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)+$  # a setting
    | [A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$  # a variable of the environment
    | {_UUID}
    | \d{{4}}-\d\d-\d\d  # a date
    | \d+(?:[-+]\d*)?[-_]?(?:ch|byte|bit|day|min|max|hour|sec|week|month|year|digit|letter)  # a rule for passwords
    | (?i:1pass|keepass|oauth|sha-?[0-9]|md[245]|aes|rsa|pbkdf|argon|bcrypt|base|utf|hmac)  # a program, or a method
    | (?i:n?(?:var)?char|string|text|u?int)\d*$  # a type
    """,
    re.VERBOSE | re.ASCII,
)
_IDENTIFIER: Final = re.compile("(?i:[a-z]{0,2}[0-9]+[a-z]{0,2}(?:-[a-z]+)+$)|[a-z]+[0-9]*(?:_[a-z0-9]+)+$")
"""A word with a number ("s3-backed"), or the name of something in code."""
_NUMBERED: Final = re.compile("(?:[A-Z]?[a-z]+|[A-Z]+)-?[0-9.]+$")
_CALL: Final = re.compile(r"\w[(\[]")
_WORD: Final = re.compile("[A-Za-z0-9]{12,}")
_LETTER: Final = re.compile("[A-Za-z]")
_DIGIT: Final = re.compile("[0-9]")
_SIGN: Final = re.compile("[!@#%^&+?=~]")
_SAMPLE_WORD: Final = re.compile(
    "pass|pwd|secret|your|my|example|sample|value|string|chang|test|dummy|token|key|prompt|stdin|file|env|require"
    "|defin|hidden|redact|mask|insert|here|some|user|none|null|true|false"
)
_SAMPLE_UUIDS: Final = frozenset(("123e4567-e89b-12d3-a456-426614174000", "12345678-1234-1234-1234-123456789012"))


def _like_password(value: str) -> bool:
    """Words pass: a password has a digit beside its letters, or a sign beside letters of both cases."""
    if len(value) < 6 or "/" in value or _LETTER.search(value) is None or _REFERENCE.match(value):
        return False
    cased = not (value.islower() or value.isupper())
    return _DIGIT.search(value) is not None or (cased and _SIGN.search(value) is not None)


def _like_password_or_word(value: str) -> bool:
    """Where only a password can stand, a long word is one, unless it says that it stands for one."""
    word = len(value) >= 8 and value.isalpha() and not value.isupper() and not _SAMPLE_WORD.search(value.lower())
    return word or _like_password(value)


def _like_key(value: str) -> bool:
    """A key is long, and letters and digits are mixed in it: names with a date or a number pass."""
    return (
        len(value) >= 16
        and any(_LETTER.search(word) and _DIGIT.search(word) for word in _WORD.findall(value))
        and _REFERENCE.match(value) is None
    )


def _like_uuid(value: str) -> bool:
    return re.match(_UUID, value) is not None and len(set(value)) > 3 and value.lower() not in _SAMPLE_UUIDS


_Shape = Callable[[str], bool]


class _Given(RegexBasedDetector):
    """Values right behind what announces them."""

    secret_type = "assigned secret"
    denylist: Sequence[re.Pattern[str]] = ()
    _followed: Sequence[tuple[re.Pattern[str], bool]] = ((re.compile(_SPACE + _VALUE), False),)
    """What may follow an announcement, and whether that tells little."""

    def __init__(self, shape: _Shape, *announcements: str) -> None:
        """Expects what the value must look like, and expressions in lower case that each begin with a literal, or take
        no time.
        """
        self._announced = [re.compile(announcement) for announcement in announcements]
        self._has_shape = shape

    def analyze_string(self, string: str) -> Generator[str, None, None]:
        # Searched in lower case, since a search that ignores case takes ten times as long. The dotted capital I is the
        # one letter that is another number of characters in lower case.
        lowered = string.replace("\u0130", "I").lower()
        for announced in self._announced:
            for name in announced.finditer(lowered):
                yield from self._values(string, name)

    def _values(self, string: str, name: re.Match[str]) -> Iterator[str]:
        for expression, is_weak in self._followed:
            found = expression.match(string, name.end())
            if found is not None and self._is_value(found, is_weak):
                yield found[2]

    def _is_value(self, found: re.Match[str], is_weak: bool) -> bool:
        value = found[2].rstrip(".,;:!?)*_|]}")
        return (
            self._has_shape(value)
            and not _is_placeholder(value)
            # Not what makes it.
            and (found[1] != "" or _CALL.search(value) is None)
            and not (is_weak and _IDENTIFIER.match(value))
        )


class _Assigned(_Given):
    """Values beside a name that says that they are secret. The library's KeywordDetector does this for source code; in
    prose it takes every word after "password:" for one.
    """

    _followed = ((re.compile(_SEPARATOR + _VALUE), False), (re.compile(_PROSE + _VALUE), True))

    def __init__(self, shape: _Shape, name: str) -> None:
        super().__init__(shape, rf"{name}\d?")

    def _values(self, string: str, name: re.Match[str]) -> Iterator[str]:
        yield from super()._values(string, name)
        cell = _CELL.match(string, name.end())
        if cell is not None and self._is_value(cell, True):
            before = string[max(0, name.start() - _LONGEST_BEFORE) : name.start()].rpartition("\n")[2].lstrip(" \t>")
            is_first = before.startswith("|") and before.count("|") == 1
            # A name in another cell may itself be the value of the first.
            if is_first or ("|" in before and _NUMBERED.match(cell[2]) is None):
                yield cell[2]


class _AssignedUuid(_Assigned):
    """UUIDs beside the name of a key."""

    def __init__(self) -> None:
        super().__init__(_like_uuid, _UUID_NAME)

    def analyze_string(self, string: str) -> Generator[str, None, None]:
        # Takes a tenth of the time of the names.
        if _IN_UUID.search(string) is not None:
            yield from super().analyze_string(string)


class _Encoded(_Form):
    """A user and a password, joined by a colon, in Base64: as Docker keeps them, and HTTP sends them."""

    def analyze_string(self, string: str) -> Generator[str, None, None]:
        for value in super().analyze_string(string):
            try:
                user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
            except ValueError:
                continue
            if user and len(password) > 2 and (user + password).isprintable() and not _is_placeholder(password):
                yield value


class _Prefixed(BasePlugin):
    """Credentials that begin with a literal, and what follows it. Neither goes on with a letter or a digit."""

    secret_type = "credential"

    def __init__(self, *forms: tuple[str, str]) -> None:
        self._forms = [(prefix, _form(prefix, f"{rest}(?![A-Za-z0-9])")) for prefix, rest in forms]

    def analyze_string(self, string: str) -> Generator[str, None, None]:
        for prefix, expression in self._forms:
            # Takes a tenth of the time of the expression.
            if prefix in string:
                yield from (found[0] for found in expression.finditer(string))


_MIXED: Final = "(?=[A-Za-z0-9_-]{0,64}[A-Z])(?=[A-Za-z0-9_-]{0,64}[a-z])"
"""Before what might be words otherwise."""

FORMS: Final[Sequence[tuple[str, BasePlugin]]] = (
    ("Anthropic API key", _Form(_form("sk-ant-", r"[\w-]{20,}"))),
    (
        "OpenAI API key",
        # The marker in the middle is Base64 for "OpenAI".
        _Form(
            _form("sk-", r"(?:proj|svcacct|admin|None)-[\w-]{20,}"),
            re.compile(r"sk-(?<![A-Za-z0-9-]sk-)[\w-]{20,84}?T3BlbkFJ[\w-]{20}", re.ASCII),
        ),
    ),
    (
        "API key",
        _Form(_form("sk-", "(?:or-v1-[0-9a-f]{32,}|lf-[0-9a-f-]{36}|(?![A-Za-z0-9]{20}T3BlbkFJ)[A-Za-z0-9]{32,})")),
    ),
    ("Google API key", _Form(_form("AIza", r"[\w-]{35}(?![A-Za-z0-9-])"))),
    ("Google OAuth secret", _Form(_form("GOCSPX-", r"[\w-]{28}"), _form("ya29.", r"[\w-]{20,}"))),
    ("Hugging Face token", _Form(_form("hf_", "[A-Za-z0-9]{34}"), _form("api_org_", "[A-Za-z0-9]{34}"))),
    ("Groq API key", _Form(_form("gsk_", "[A-Za-z0-9]{40,}"))),
    ("xAI API key", _Form(_form("xai-", "[A-Za-z0-9]{60,}"))),
    ("Replicate API token", _Form(_form("r8_", "[A-Za-z0-9]{37}"))),
    ("Perplexity API key", _Form(_form("pplx-", "[A-Za-z0-9]{40,}"))),
    (
        "AWS access key",
        # Not within a hash in capitals or Base64.
        _Form(re.compile("A(?:3T[A-Z0-9]|BIA|CCA|KIA|SIA)(?<![A-Za-z0-9+/].{4})[0-9A-Z]{16}(?![A-Za-z0-9+/])")),
    ),
    (
        "AWS secret key",
        _Form(
            re.compile(
                "(?:aws|Aws|AWS|secret|Secret|SECRET).{0,20}?(?:key|Key|KEY|token|Token|TOKEN).{0,20}?"
                # Not a hash, nor a path.
                "(?<![A-Za-z0-9/+])(?=[0-9a-z/+]{0,39}[A-Z])(?=[A-Za-z/+]{0,39}[0-9])(?![0-9A-F]{40})"
                "[0-9A-Za-z/+]{40}(?![A-Za-z0-9/+=])"
            ),
            re.compile("(?:session|Session|SESSION)_?(?:token|Token|TOKEN).{0,8}?[0-9A-Za-z/+]{100}"),
        ),
    ),
    ("Azure Storage account key", AzureStorageKeyDetector()),
    (
        "Azure secret",
        _Form(
            re.compile(r"SharedAccessKey=[A-Za-z0-9+/]{43}="),
            re.compile(r"[?&]sig=[A-Za-z0-9%+/]{43,80}(?:%3D|=)"),
            re.compile(r"Q~(?<=[\w.~-]{3}\dQ~)[\w.~-]{31,34}(?![A-Za-z0-9])", re.ASCII),
        ),
    ),
    ("GitHub token", GitHubTokenDetector()),
    ("GitHub fine-grained token", _Form(_form("github_pat_", r"\w{36,}"))),
    ("GitLab token", _GitLabToken()),
    ("Slack token", SlackDetector()),
    ("Slack app token", _Form(_form("xapp-", r"\d-[A-Z0-9]+-\d+-[a-z0-9]+"), _form("xoxe", r"[.-][\w.-]{20,}"))),
    ("Stripe key", StripeDetector()),
    ("Stripe test key or webhook secret", _Form(_form("sk_test_", "[0-9a-zA-Z]{24}"), _form("whsec_", r"[\w+/]{32,}"))),
    ("PyPI token", PypiTokenDetector()),
    ("npm token", _Form(_form("npm_", "[A-Za-z0-9]{36}"), re.compile(r"/:_authToken=[ \t]{0,8}[A-Fa-f0-9-]{36}"))),
    ("RubyGems key", _Form(_form("rubygems_", "[0-9a-f]{48}"))),
    ("Docker Hub token", _Form(_form("dckr_pat_", r"[\w-]{27}"))),
    ("Shopify token", _Form(*(_form(f"shp{kind}_", "[0-9a-fA-F]{32}") for kind in ("at", "ca", "pa", "ss")))),
    ("Atlassian API token", _Form(_form("ATATT3", r"[\w=-]{100,}"))),
    ("SendGrid API key", SendGridDetector()),
    ("Mailchimp API key", _Form(re.compile("-us(?<=[0-9a-z]{32}-us)(?<![0-9a-z]{33}-us)[0-9]{1,2}"))),
    ("Twilio API key", TwilioKeyDetector()),
    ("Square OAuth secret", SquareOAuthDetector()),
    ("Artifactory token", _Form(_form("AKCp", "[A-Za-z0-9]{69}(?![A-Za-z0-9])"))),
    # Not a time and a hash.
    ("Telegram bot token", _Form(re.compile(r":AA(?<=\d{8}:AA)[\w-]{33}(?![A-Za-z0-9-])", re.ASCII))),
    (
        "Discord bot token",
        _Form(
            # A number in Base64 begins it, which tells it from names with dots.
            re.compile("[MNO][DTjz][AEIMQUYcgk][w-z0-5]" * 5 + r"[\w-]{2,8}\.[\w-]{6}\.[\w-]{27,40}", re.ASCII),
            # Or both ends are random.
            re.compile(
                r"[MNO](?<![A-Za-z0-9.-][MNO])(?=[A-Za-z_-]{0,26}[0-9])[\w-]{22,27}\.[\w-]{6}\."
                r"(?=[A-Za-z_-]{0,38}[0-9])(?=[a-z0-9_-]{0,38}[A-Z])[\w-]{27,38}(?![A-Za-z0-9.-])",
                re.ASCII,
            ),
            _form("mfa.", r"[\w-]{84}"),
        ),
    ),
    ("Discord webhook", _Form(re.compile(r"/api/(?:v\d{1,2}/)?webhooks/\d{17,20}/[\w-]{60,80}", re.ASCII))),
    # As `memoryd token create` makes them.
    ("memoryd token", _Prefixed(("memoryd_", _MIXED + r"[\w-]{43}"))),
    ("DigitalOcean token", _Prefixed(*((f"do{kind}_v1_", "[0-9a-f]{64}") for kind in "por"))),
    ("Databricks token", _Prefixed(("dapi", "[0-9a-f]{32}(?:-[0-9])?"))),
    ("HashiCorp Vault token", _Prefixed(*((f"hv{kind}.", _MIXED + r"[\w-]{24,}") for kind in "sbr"))),
    (
        "HashiCorp Terraform token",
        _Form(re.compile(r"\.atlasv1\.(?<=[A-Za-z0-9]{14}\.atlasv1\.)[\w=-]{60,70}", re.ASCII)),
    ),
    ("Grafana token", _Prefixed(("glsa_", "[A-Za-z0-9]{32}_[0-9a-f]{8}"), ("glc_eyJ", "[A-Za-z0-9+/]{29,}={0,2}"))),
    ("Notion token", _Prefixed(("ntn_", "[A-Za-z0-9]{40,}"), ("secret_", _MIXED + "[A-Za-z0-9]{43}"))),
    ("Linear API key", _Prefixed(("lin_api_", "[A-Za-z0-9]{40}"), ("lin_oauth_", "[0-9a-f]{64}"))),
    (
        "Doppler token",
        _Prefixed(
            *((f"dp.{kind}.", "[A-Za-z0-9]{40,44}") for kind in ("ct", "pt", "sa", "said", "scim", "audit")),
            ("dp.st.", r"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
        ),
    ),
    (
        "Fly.io token",
        _Prefixed(
            *((f"fm{kind}_", "[A-Za-z0-9+/]{40,}={0,3}") for kind in ("1r", "1a", "2")), ("fo1_", _MIXED + r"[\w-]{43}")
        ),
    ),
    ("Figma token", _Prefixed(*((f"fig{kind}_", _MIXED + r"[\w-]{40}") for kind in ("d", "o", "u", "or", "ur")))),
    (
        "Sentry token",
        _Prefixed(
            ("sntrys_", "eyJ[A-Za-z0-9+/=]{40,}_[A-Za-z0-9+/]{43}"),
            *((f"sntry{kind}_", "[0-9a-f]{64}") for kind in "uai"),
        ),
    ),
    ("Supabase token", _Prefixed(("sbp_", "(?:v0_)?[0-9a-f]{40}"), ("sb_secret_", r"[\w-]{31}"))),
    ("Vercel token", _Prefixed(*((f"vc{kind}_", _MIXED + "[A-Za-z0-9]{24,}") for kind in "apirk"))),
    ("Tailscale key", _Prefixed(("tskey-", r"(?:[a-z]{2,12}-)?[A-Za-z0-9]{6,}-[A-Za-z0-9]{16,}"))),
    ("Cloudflare token", _Prefixed(*((f"cf{kind}_", _MIXED + "[A-Za-z0-9]{40,}") for kind in ("k", "ut", "at")))),
    (
        "1Password secret",
        _Prefixed(
            ("ops_eyJ", "[A-Za-z0-9+/]{100,}={0,3}"),
            ("A3-", "[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
        ),
    ),
    ("Postman API key", _Prefixed(("PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}"))),
    ("Pulumi token", _Prefixed(("pul-", "[0-9a-f]{40}"))),
    ("PlanetScale secret", _Prefixed(*((f"pscale_{kind}_", r"[\w.=-]{32,64}") for kind in ("tkn", "oauth", "pw")))),
    ("New Relic key", _Prefixed(("NRAK-", "[A-Z0-9]{27}"))),
    ("Airtable token", _Prefixed(("pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"))),
    (
        "HubSpot token",
        _Prefixed(
            *(
                (f"pat-{region}", r"\d-[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
                for region in ("na", "eu", "ap")
            )
        ),
    ),
    ("Brevo key", _Prefixed(*((f"x{kind}sib-", "[0-9a-f]{64}-[A-Za-z0-9]{16}") for kind in ("key", "smtp")))),
    ("Dynatrace token", _Prefixed(("dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"))),
    ("Buildkite token", _Prefixed(("bkua_", "[0-9a-f]{40}"))),
    (
        "CircleCI token",
        _Prefixed(("CCIPAT_", "[A-Za-z0-9]{22}_[0-9a-f]{40}"), ("CCIPRJ_", "[A-Za-z0-9]{22}_[0-9a-f]{40}")),
    ),
    ("NVIDIA API key", _Prefixed(("nvapi-", r"[\w-]{60,70}"))),
    ("PostHog key", _Prefixed(("phx_", "[A-Za-z0-9]{40,48}"))),
    ("LangSmith key", _Prefixed(*((f"lsv2_{kind}_", "[0-9a-f]{32}_[0-9a-f]{10}") for kind in ("pt", "sk")))),
    ("Pinecone key", _Prefixed(("pcsk_", "[A-Za-z0-9]{5,6}_[A-Za-z0-9]{60,64}"))),
    ("E2B key", _Prefixed(("e2b_", "[0-9a-f]{40}"))),
    ("Together API key", _Prefixed(("tgp_v1_", r"[\w-]{43}"))),
    ("Resend API key", _Prefixed(("re_", _MIXED + "(?=[A-Za-z_]{0,40}[0-9])[A-Za-z0-9]{8}_[A-Za-z0-9]{24}"))),
    ("Neon API key", _Prefixed(("napi_", "[a-z0-9]{64}"))),
    ("Alibaba Cloud access key", _Prefixed(("LTAI", "[A-Za-z0-9]{20}"))),
    (
        "password in Base64",
        _Encoded(
            re.compile(r"""auth["']?[ \t]{0,8}[:=][ \t]{0,8}["']?([A-Za-z0-9+/]{8,512}={0,2})"""),
            re.compile("[Bb]asic[ ]([A-Za-z0-9+/]{8,512}={0,2})"),
        ),
    ),
    ("Docker credentials", _Prefixed(("eyJhdXRocyI6", "[A-Za-z0-9+/]{20,}={0,2}"))),
    ("JSON Web Token", _Jwt()),
    ("private key", _PrivateKey()),
    (
        "password in a URL",
        # The name may be missing, as for Redis, and the password have any characters.
        _UrlPassword(re.compile(r"://[^\s/?#@:\[\]<>\"'`]{0,128}:([^\s/@<>\"'`]{1,256})@[\w\[]")),
    ),
)
"""What has a form of its own, by the kind that people read."""

_FLAG: Final = "--(?:[a-z]{1,16}-){0,2}"
_OPTIONS: Final = r"[^\n]{0,100}?[ \t]"
_NETRC: Final = r"[ \t]{1,8}\S{1,64}[ \t]{1,8}password(?=[ \t])"
_LOGINS: Final = "|".join(
    f"(?<={command} login)" for command in ("docker", "podman", "nerdctl", "registry", "helm", "oc", "az", "cf")
)

ASSIGNED: Final[Sequence[tuple[str, BasePlugin]]] = (
    ("password", _Assigned(_like_password, _PASSWORD_NAME)),
    (
        "password",
        _Given(
            _like_password,
            rf"{_FLAG}{_PASSWORD_NAME}(?=[ \t])",
            r"-u[ =](?<!\S-u[ =])[^\s:]{1,64}:(?!\s)",
            r"--user[ =][^\s:]{1,64}:(?!\s)",
            rf"login(?:{_LOGINS}){_OPTIONS}-p[ =]?",
            rf"sshpass{_OPTIONS}-p[ =]?",
            rf"mongo[a-z]{{0,7}}{_OPTIONS}-p[ =]?",
            rf"redis-cli{_OPTIONS}-a[ ]",
            rf"ldap[a-z]{{3,9}}{_OPTIONS}-w[ ]",
            rf"sqlcmd{_OPTIONS}-p[ ]?",
            "-pass(?:in|out)?[ ]pass:",
            # A netrc, in one line.
            rf"login{_NETRC}",
        ),
    ),
    (
        "password",
        _Given(
            _like_password_or_word,
            rf"{_FLAG}{_PASSWORD_NAME}=(?=\S)",
            rf"machine[ \t]{{1,8}}\S{{1,64}}[ \t]{{1,8}}login{_NETRC}",
            rf"default[ \t]{{1,8}}login{_NETRC}",
            rf"mysql[a-z_-]{{0,12}}{_OPTIONS}-p(?=\S)",
            rf"mariadb[a-z_-]{{0,12}}{_OPTIONS}-p(?=\S)",
            rf"curl{_OPTIONS}-(?:[a-z]{{0,8}}u[ =]?|-(?:proxy-)?user[ =])[\"']?[^\s:\"'-][^\s:\"']{{0,63}}:(?!\s)",
        ),
    ),
    ("key or token", _Assigned(_like_key, _KEY_NAME)),
    (
        "key or token",
        _Given(_like_key, rf"{_FLAG}{_KEY_NAME}(?=[ \t])", r"authorization.{0,6}?(?:bearer|basic|token)(?=[ ])"),
    ),
    ("key or token", _AssignedUuid()),
)
"""What only the name beside it tells."""
