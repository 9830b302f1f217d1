"""Credentials are found in texts that are about to be kept, and nothing else is taken for one (design section 7).

Every credential is put together from pieces: no scanner of a code host may take this file for a leak.
"""

from __future__ import annotations

import base64
import hashlib
import random
import string
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.credentials import token_editing
from memoryd_server.engine.secret_scan import MAX_FOUND, FoundSecret, find_secrets, find_secrets_in_bytes

_RANDOM: Final = random.Random(20)
_ALPHANUMERIC: Final = string.ascii_letters + string.digits


def _some(length: int, alphabet: str = _ALPHANUMERIC) -> str:
    """Random characters that begin with a letter and a digit, so that they never happen to be a word."""
    start = "".join(
        next(one for one in kind if one in alphabet) for kind in ("abcABC", "789") if set(kind) & {*alphabet}
    )
    return (start + "".join(_RANDOM.choices(alphabet, k=length)))[:length]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _base64url(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


_CAPITALS: Final = string.ascii_uppercase + string.digits
_SMALL: Final = string.ascii_lowercase + string.digits
_HEX: Final = "0123456789abcdef"
_DASHES: Final = "-" * 5
_UUID: Final = str(uuid.UUID(int=_RANDOM.getrandbits(128)))
_AWS_SECRET: Final = _some(18) + "/" + _some(11) + "+" + _some(9)

SECRETS: Final = {
    "Anthropic": ("Anthropic API key", "sk-" + "ant-api03-" + _some(80) + "-" + _some(14)),
    "OpenAI": ("OpenAI API key", "sk-" + _some(20) + "T3Blbk" + "FJ" + _some(20)),
    "OpenAI project": ("OpenAI API key", "sk-" + "proj-" + _some(74) + "T3Blbk" + "FJ" + _some(74)),
    "OpenAI-like": ("API key", "sk-" + _some(32, _HEX)),
    "OpenRouter": ("API key", "sk-" + "or-v1-" + _some(64, _HEX)),
    "Google": ("Google API key", "AI" + "za" + _some(35)),
    "Google OAuth": ("Google OAuth secret", "GOC" + "SPX-" + _some(28)),
    "Hugging Face": ("Hugging Face token", "h" + "f_" + _some(34)),
    "Groq": ("Groq API key", "gs" + "k_" + _some(52)),
    "AWS": ("AWS access key", "AK" + "IA" + _some(16, _CAPITALS)),
    "AWS for a session": ("AWS access key", "AS" + "IA" + _some(16, _CAPITALS)),
    "AWS secret": ("AWS secret key", "aws_secret_" + "access_key = " + _AWS_SECRET),
    "AWS secret in JSON": ("AWS secret key", '"SecretAccess' + f'Key": "{_AWS_SECRET}"'),
    "Azure Storage": ("Azure Storage account key", "AccountName=a;Account" + "Key=" + _some(86) + "=="),
    "Azure Service Bus": ("Azure secret", "SharedAccess" + "Key=" + _some(43) + "="),
    "Azure application": ("Azure secret", _some(3) + "8Q~" + _some(34)),
    "GitHub": ("GitHub token", "gh" + "p_" + _some(36)),
    "GitHub Actions": ("GitHub token", "gh" + "s_" + _some(36)),
    "GitHub fine-grained": ("GitHub fine-grained token", "github" + "_pat_" + _some(22) + "_" + _some(59)),
    "GitLab": ("GitLab token", "gl" + "pat-" + _some(20)),
    "Slack": (
        "Slack token",
        "xo" + "xb-" + _some(12, string.digits) + "-" + _some(12, string.digits) + "-" + _some(24),
    ),
    "Slack webhook": (
        "Slack token",
        "https://hooks.slack" + ".com/services/T" + _some(8, _CAPITALS) + "/B0/" + _some(24),
    ),
    "Stripe": ("Stripe key", "sk_" + "live_" + _some(24)),
    "Stripe webhook": ("Stripe test key or webhook secret", "wh" + "sec_" + _some(32)),
    "PyPI": ("PyPI token", "pypi-" + "AgEIcHlwaS5vcmc" + _some(120)),
    "npm": ("npm token", "np" + "m_" + _some(36)),
    "npm of old": ("npm token", "//registry.example.org/:_auth" + f"Token={uuid.UUID(int=_RANDOM.getrandbits(128))}"),
    "Docker Hub": ("Docker Hub token", "dckr" + "_pat_" + _some(27)),
    "DigitalOcean": ("DigitalOcean token", "dop" + "_v1_" + _some(64, _HEX)),
    "SendGrid": ("SendGrid API key", "SG" + "." + _some(22) + "." + _some(43)),
    "Mailchimp": ("Mailchimp API key", _some(32, _HEX) + "-us" + "12"),
    "Twilio": ("Twilio API key", "S" + "K" + _some(32, _HEX)),
    "Telegram": ("Telegram bot token", _some(10, string.digits) + ":A" + "A" + _some(33)),
    "Discord": ("Discord bot token", _base64url("198622483471925248") + "." + _some(6) + "." + _some(27)),
    "Artifactory": ("Artifactory token", "AK" + "Cp" + _some(69)),
    "JWT": ("JSON Web Token", ".".join((_base64url('{"alg":"HS256"}'), _base64url('{"sub":"ann"}'), _some(43)))),
    "RSA": ("private key", f"{_DASHES}BEGIN RSA PRIV" + f"ATE KEY{_DASHES}"),
    "encrypted": ("private key", f"{_DASHES}BEGIN ENCRYPTED PRIV" + f"ATE KEY{_DASHES}"),
    "OpenSSH": ("private key", f"{_DASHES}BEGIN OPENSSH PRIV" + f"ATE KEY{_DASHES}"),
    "PostgreSQL": ("password in a URL", "postgres" + f"://ann:{_some(12)}@db.example.org:5432/app"),
    "PostgreSQL, with signs": ("password in a URL", "postgres" + "://ann:p$ss!" + "w0rd@db/app"),
    "Redis": ("password in a URL", "redis" + f"://:{_some(12)}@cache:6379/0"),
    "HTTPS": ("password in a URL", "https" + f"://ann:{_some(12)}@example.org/a.git"),
    "ADO.NET": ("password", "Server=tcp:a.example.org,1433;User ID=ann;Pass" + "word=hunter2!;Encrypt=True"),
    "libpq": ("password", "host=db user=ann pass" + "word=hunter2 dbname=app"),
    "assigned password": ("password", "pass" + "word = hunter2"),
    "password in JSON": ("password", '{"user": "ann", "pass' + 'word": "hunter2"}'),
    "password in bold": ("password", "**Pass" + "word:** hunter2"),
    "password with a remark": ("password", "- pass" + "word (staging): `hunter2`"),
    "password in another script": ("password", "数据库密码" + "：hunter2"),
    "password in prose": ("password", "The pass" + "word is `hunter2`."),
    "password of the environment": ("password", "export DB_PA" + "SS=hunter2"),
    "password with signs": ("password", "Pass" + "wort: Horse+Battery"),
    "password on a command line": ("password", "mysql -u root --pass" + "word hunter2"),
    "password of curl": ("password", "curl -u ann:hunt" + "er2 https://example.org"),
    "password behind a verb": ("password", "the staging pass" + "word is Tr0ub4dor&3x"),
    "password behind a verb in German": ("password", "Das Pass" + "wort ist Tr0ub4dor&3x"),
    "password behind a verb in Chinese": ("password", "密" + "码是Tr0ub4dor&3x"),
    "password behind a verb in Japanese": ("password", "パス" + "ワードは Tr0ub4dor&3x"),
    "password of something": ("password", "pass" + "word for the wiki (old) is hunter2"),
    "password in backticks": ("password", "pass" + "word `Xk29sLq0Pz`"),
    "password in quotes": ("password", "IDENTIFIED WITH PASS" + "WORD 'Xk29sLq0Pz'"),
    "password in a cell": ("password", "| db | ann | pass" + "word: Xk29sLq0Pz |"),
    "password of netrc": ("password", "machine example.org login ann pass" + "word correcthorse"),
    "password of mysql": ("password", "mysql -uroot -p" + "hunter2"),
    "password of sshpass": ("password", "sshpass -p " + "hunter2 ssh a"),
    "password of curl, joined": ("password", "curl -su" + "ann:correcthorse https://example.org"),
    "password of docker": ("password", "docker login -u ann -p " + "hunter2 example.org"),
    "password of redis": ("password", "redis-cli -h cache -a " + "hunter2"),
    "password behind an equals sign": ("password", "tool --pass" + "word=correcthorse"),
    "password of Docker": ("password in Base64", '"au' + f'th": "{_base64("ann:hunt" + "er2")}"'),
    "password of Docker in one line": (
        "password in Base64",
        '{"auths": {"example.org": {"au' + f'th": "{_base64("ann:a-horse")}"}}}}}}',
    ),
    "password of HTTP": ("password in Base64", "Authorization: Bas" + f"ic {_base64('ann:hunt' + 'er2')}"),
    "UUID of Heroku": ("key or token", "HEROKU_API_" + f"KEY={_UUID}"),
    "UUID of a client": ("key or token", "client_" + f"secret: {_UUID}"),
    "UUID in JSON": ("key or token", '"api' + f'Key": "{_UUID}"'),
    "UUID in a header": ("key or token", "X-Api-" + f"Key: {_UUID}"),
    "Discord of old": ("Discord bot token", _base64url("19862248347192524") + "." + _some(6) + "." + _some(27)),
    "Discord, made up": ("Discord bot token", "N" + _some(25) + "." + _some(6) + "." + _some(38)),
    "Discord webhook": (
        "Discord webhook",
        "https://discord.com/api/web" + f"hooks/{_some(18, string.digits)}/" + _some(68),
    ),
    "Doppler": ("Doppler token", "dp" + ".pt." + _some(43)),
    "Doppler service": ("Doppler token", "dp" + ".st.prd." + _some(43)),
    "Fly": ("Fly.io token", "FlyV1 fm" + "2_" + _some(120)),
    "Figma": ("Figma token", "fig" + "d_" + _some(40)),
    "Sentry": (
        "Sentry token",
        "sntr" + "ys_" + _base64('{"iat":1716900000.5,"url":"https://sentry.io"}') + "_" + _some(43),
    ),
    "Sentry user": ("Sentry token", "sntr" + "yu_" + _some(64, _HEX)),
    "Notion": ("Notion token", "nt" + "n_" + _some(46)),
    "Notion of old": ("Notion token", "sec" + "ret_" + _some(43)),
    "Linear": ("Linear API key", "lin" + "_api_" + _some(40)),
    "Databricks": ("Databricks token", "da" + "pi" + _some(32, _HEX)),
    "Grafana": ("Grafana token", "gl" + "sa_" + _some(32) + "_" + _some(8, _HEX)),
    "Vault": ("HashiCorp Vault token", "hv" + "s." + _some(90)),
    "Supabase": ("Supabase token", "sb" + "p_" + _some(40, _HEX)),
    "Vercel": ("Vercel token", "vc" + "p_" + _some(56)),
    "Tailscale": ("Tailscale key", "ts" + "key-auth-" + _some(12) + "-" + _some(32)),
    "age": ("private key", "AGE-SECRET-" + "KEY-1" + _some(58, _CAPITALS)),
    "Cloudflare": ("Cloudflare token", "cf" + "ut_" + _some(48)),
    "Resend": ("Resend API key", "r" + "e_" + _some(8) + "_" + _some(24)),
    "assigned key": ("key or token", "API_" + "KEY: " + _some(32, _SMALL)),
    "hexadecimal key": ("key or token", "api_" + "key=" + _some(32, _HEX)),
    "assigned token": ("key or token", "export CI_TO" + f"KEN='{_some(20)}'"),
    "bearer": ("key or token", "Authorization: Bea" + f"rer {_some(40)}"),
}
"""Usual credentials, with their kinds."""

each_secret = pytest.mark.parametrize(("kind", "secret"), SECRETS.values(), ids=SECRETS.keys())


@each_secret
def test_a_credential_is_found_with_its_line_and_kind(kind: str, secret: str) -> None:
    assert find_secrets(f"# Notes\n\n- The key:\n- {secret}\n\nMore.\n") == [FoundSecret(4, kind)]


@each_secret
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_ends_as_in_markdown(kind: str, secret: str, end: str) -> None:
    """LF, CRLF or CR; a line separator of Unicode ends none, and one line may have kinds of its own."""
    assert find_secrets(f"one{end}{end}a\u2028b\x0b\x85{end}{secret}{end}end") == [FoundSecret(4, kind)]


@each_secret
def test_a_credential_may_be_the_whole_text_or_stand_at_an_end(kind: str, secret: str) -> None:
    assert find_secrets(secret) == [FoundSecret(1, kind)]
    assert find_secrets(f"{secret}\nafter") == [FoundSecret(1, kind)]
    assert find_secrets(f"before\n{secret}") == [FoundSecret(2, kind)]


_AROUND: Final = (
    *("`{}`", "> {}", "| staging | {} |", "|a|{}|", "```\n{}\n```", "    {}"),
    *("see {}, please", "({})", "**{}**", "_{}_", "<b>{}</b>", "é{}é"),
)


@each_secret
def test_a_credential_is_found_inside_markdown(kind: str, secret: str) -> None:
    missed = [around for around in _AROUND if [one.kind for one in find_secrets(around.format(secret))] != [kind]]
    assert not missed


@each_secret
def test_nothing_of_a_credential_is_in_what_is_told(kind: str, secret: str) -> None:
    (found,) = find_secrets(f"before\n{secret}")
    told = f"{found} {found!r} {found!s}"
    parts = [secret[at : at + 8] for at in range(len(secret) - 7)]
    assert not [part for part in parts if part in told and part.lower() not in kind.lower()]
    assert (found.line, found.kind) == (2, kind)


HASH: Final = hashlib.sha1(b"a").hexdigest()
IMAGE: Final = base64.b64encode(random.Random(3).randbytes(60_000)).decode()
HARMLESS: Final = {
    "MD5": hashlib.md5(b"a").hexdigest(),
    "SHA-1": HASH,
    "SHA-256": f"sha256:{hashlib.sha256(b'a').hexdigest()}",
    "hash in capitals": "ACCA" + hashlib.sha256(b"a").hexdigest().upper()[4:],
    "commit of a secret key": f"Rotated the secret signing key in {HASH}.",
    "git range": f"index {HASH[:7]}..{HASH[7:14]} 100644",
    "integrity": f"integrity: sha512-{base64.b64encode(hashlib.sha512(b'a').digest()).decode()}",
    "go.sum": f"golang.org/x/text v0.3.0 h1:{base64.b64encode(hashlib.sha256(b'a').digest()).decode()}",
    "constraint": f"--hash=sha256:{hashlib.sha256(b'b').hexdigest()}",
    "hash with its time": f"1716900000:{HASH}",
    "hash of a password": f"password_hash: {hashlib.md5(b'a').hexdigest()}",
    "UUID": "user 123e4567-e89b-12d3-a456-426614174000",
    "UUID of a secret": "secret: 123e4567-e89b-12d3-a456-426614174000",
    "image": f"![logo](data:image/png;base64,{IMAGE})",
    "Base64 in lines": "\n".join(IMAGE[at : at + 76] for at in range(0, len(IMAGE), 76)),
    "Base64 that speaks of OpenAI": base64.b64encode(
        b"The user likes OpenAI and prefers it to others, they said."
    ).decode(),
    "kept elsewhere": "the password is kept in 1Password",
    "kept in 1Password": "password: 1Password",
    "see vault": "token: see vault",
    "vault": "token: op://vault/item1/field2024abcdef",
    "file": "password: /run/secrets/db1",
    "environment": "api_key: $API_KEY",
    "environment in braces": "password=${DB_PASSWORD_1}",
    "name in the environment": "api_key: OPENAI_API_KEY_2024_V2",
    "template": "password: {{ vault1.password }}",
    "placeholder": "password: <your password>",
    "placeholder in code": 'api_key = "<your-api-key-1234567890>"',
    "masked": "PASSWORD=***",
    "masked key": "API_KEY=xxxxxxxxxxxxxxxx1234567890ab",
    "elided": "key: `sk-ant-...`, token: sk-proj-…",
    "URL without a password": "postgres://ann@db/app, http://localhost:3000/@scope, ssh://git@example.org:22/a",
    "URL with a masked password": "postgres://ann:***@db/app",
    "URL with a placeholder": "postgres://user:password@host/db or postgres://user:<password>@host/db",
    "URL with a variable": "postgres://ann:$PGPASSWORD@db/app postgres://ann:${PW1}@db/app",
    "code that reads it": "password = os.environ['DB_PASS1']; password = getpass2(); password=self.password1",
    "setting": "token=settings.auth.token2024value",
    "type": "password: str, token: string, secret: SecretStr",
    "rule": "password: 12-characters minimum; password: at least 8 characters",
    "date": "password: 2024-05-01T10:00 changed",
    "method": "password: argon2id, then sha256-hashed; password=pbkdf2_sha256",
    "number of tokens": "max_tokens: 4096, token budget: 128000",
    "page": "next_page_token: abcdef0123456789abcd",
    "hash after a word of protocols": f"Basic {HASH} and bearer {HASH}",
    "word": "password: required",
    "list": "- password\n- api key\n- token\n",
    "names with dots": "NotificationManagerLongName.update.anotherVeryLongIdentifierName1",
    "capitals": "APACHELICENSE2 AKCESSORIES99999 AC SK",
    "scikit-learn": "#sk-container-id-1 div.sk-toggleable__content { color: red }",
    "fingerprint": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + _some(43) + " ann@example.org",
    "public key": f"{_DASHES}BEGIN PUBLIC KEY{_DASHES}",
    "bullets": "- Prefers tabs.\n- Tests: `make test`.\n- Reviewer: ann@example.org\n",
    "headings": "# Preferences\n\n## Style\n- 120 columns\n\n## Credentials\n- in 1Password, item `Staging`\n",
    "prose": "The user works on memoryd. They keep the API key in the keychain, and the token in a variable.",
    "stays a word": "the password is required; the password is wrong. The password is s3-backed",
    "verb before a program": "the password is 1Password's; the password was sha256-hashed",
    "limit": "token limit is 4096",
    "key": "key: value",
    "name in backticks": "the password `reset_v2` column, `password` and `username1`",
    "UUID of another key": "\n".join(
        f"{name}: {_UUID}"
        for name in (
            *("session_key", "idempotency_key", "primary_key", "partition_key", "cache_key", "key_id", "api_key_id"),
            *("token_id", "access_key_id", "X-Request-Id", "token", "secret", "client_id", "public_api_key"),
        )
    ),
    "UUID of nobody": "api_key: 00000000-0000-0000-0000-000000000000",
    "UUID as a sample": "api_key: 123e4567-e89b-12d3-a456-426614174000",
    "environment template": "DB_PASSWORD=\nAPI_KEY=\nADMIN_PASSWORD=changeme\nTOKEN=<token>\n",
    "lock file": f'"integrity": "sha512-{_base64(_some(64))}", "resolved": "https://registry.example.org/a-1.0.0.tgz"',
    "table": "| name | password | port22 |\n|---|---|---|\n| password | string |\n| password | VARCHAR255 |",
    "union of types": 'type: "password" | "email2fa"; type B = "a" | "password" | "email2fa"',
    "command that asks": "mysql -uroot -p; mysql -u root -p app1; docker login -u ann --password-stdin",
    "command with a variable": 'mysql -uroot -p$PW1; sshpass -p "$PW1" ssh a; curl -u ann:${PW1} a; a --password=$PW1',
    "command with a placeholder": "curl -u user:password a; a --password=mypassword; a --password PASSWORD",
    "command with a port": "docker run --name mysql -p3306:3306 mysql; mysql -h db -P3306",
    "help of a command": "--password string   the password to use",
    "netrc template": "machine example.org login ann password mypassword",
    "login in prose": "login with password authentication; the login and password are kept elsewhere",
    "no Base64 of a password": f'"auth": "{_base64("user:password")}", auth: required, Basic {HASH[:32]}',
    "module": "memoryd_server_engine_secret_detectors_and_their_tests",
    "empty": "",
}


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_is_no_credential_passes(text: str) -> None:
    assert not find_secrets(text)


@pytest.mark.parametrize(
    "row",
    [
        "| pass" + "word | Xk29sLq0Pz |",
        "|pwd|`hunter2`|",
        "> | **DB pass" + "word** (old) | hunter2 | ann |",
        "| ann | pass" + "word | Xk29sLq0Pz |",
    ],
)
def test_a_password_is_found_in_the_cell_beside_its_name(row: str) -> None:
    assert find_secrets(f"| what | value |\n| --- | --- |\n{row}\n") == [FoundSecret(3, "password")]


def test_a_token_of_this_server_is_found(tmp_path: Path) -> None:
    """Guards the form of the tokens that `memoryd token create` makes."""
    for name in "abcdefgh":
        token, _ = token_editing.create(tmp_path / "tokens.toml", "acme", name)
        for around in ("{}", "MEMORYD_TOKEN={}", "_{}_", "see `{}`.", "é{}é"):
            assert find_secrets(around.format(token)) == [FoundSecret(1, "memoryd token")]


_FULL_WIDTH: Final = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}


@each_secret
def test_a_credential_is_found_in_full_width_letters(kind: str, secret: str) -> None:
    assert kind in [found.kind for found in find_secrets(f"one\n{secret.translate(_FULL_WIDTH)}\n")]


@each_secret
@pytest.mark.parametrize("unseen", ["\u200b", "\u2060", "\xad", "\ufeff", "\u0301", "\U000e0041", "\0"])
def test_a_credential_is_found_with_unseen_characters_inside(kind: str, secret: str, unseen: str) -> None:
    """engine/disguises.py tells which; lines are those of the text as it is."""
    hidden = unseen.join(secret)
    assert FoundSecret(4, kind) in find_secrets(f"{unseen}one\r\n\r{unseen}\n{hidden}\n")


@each_secret
def test_what_is_not_seen_may_part_a_credential_from_a_word(kind: str, secret: str) -> None:
    assert find_secrets(f"a\u200b{secret}\u200b") == [FoundSecret(1, kind)]


@each_secret
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_credential_is_found_in_bytes_of_either_encoding(kind: str, secret: str, encoding: str) -> None:
    content = f"one\r\ntwo\r\n{secret}\r\n".encode(encoding)
    assert find_secrets_in_bytes(content) == [FoundSecret(3, kind)]


def test_a_mark_of_utf_16_hides_no_credential() -> None:
    secret = SECRETS["AWS"][1]
    assert find_secrets_in_bytes("\ufeff".encode("utf-16-be") + f"a {secret}".encode()) == [
        FoundSecret(1, "AWS access key")
    ]
    assert find_secrets_in_bytes(f"\ufeff{secret}".encode("utf-16-be")) == [FoundSecret(1, "AWS access key")]
    assert not find_secrets_in_bytes(b"")
    assert not find_secrets_in_bytes(b"\xff\xfea")


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", *sorted(map(str, Path("protos").rglob("*.proto")))])
def test_the_prose_of_this_repository_passes(file: str) -> None:
    assert not find_secrets_in_bytes(Path(file).read_bytes())


def test_findings_are_in_the_order_of_lines_and_bounded() -> None:
    aws, github = SECRETS["AWS"][1], SECRETS["GitHub"][1]
    assert find_secrets(f"{github}\n\n{aws} {github} {aws}\n{aws}") == [
        FoundSecret(1, "GitHub token"),
        FoundSecret(3, "AWS access key"),
        FoundSecret(3, "GitHub token"),
        FoundSecret(4, "AWS access key"),
    ]
    many = find_secrets(f"{aws}\n" * 50_000)
    assert many == [FoundSecret(line, "AWS access key") for line in range(1, MAX_FOUND + 1)]


def test_lines_are_counted_through_a_large_text() -> None:
    assert find_secrets("a line of some words\n" * 20_000 + SECRETS["AWS"][1]) == [
        FoundSecret(20_001, "AWS access key")
    ]
    assert find_secrets("\r" * 200_000 + SECRETS["AWS"][1]) == [FoundSecret(200_001, "AWS access key")]


def test_a_letter_that_grows_in_lower_case_moves_nothing() -> None:
    assert find_secrets("\u0130" * 50 + SECRETS["assigned password"][1]) == [FoundSecret(1, "password")]
    assert [one for one in range(sys.maxunicode + 1) if len(chr(one).lower()) > 1] == [0x130]


_WORDS: Final = st.sampled_from(
    [
        "the",
        "user",
        "password",
        "token",
        "secret",
        "key",
        "api",
        "vault",
        "kept",
        "are",
        "see",
        "1Password",
        "sk",
        "Basic",
    ]
)
_HARMLESS: Final = st.one_of(
    _WORDS,
    st.integers().map(str),
    st.uuids().map(str),
    st.builds(
        lambda content, name: hashlib.new(name, content, usedforsecurity=False).hexdigest(),
        st.binary(max_size=8),
        st.sampled_from(["md5", "sha1", "sha256", "sha512"]),
    ),
    # No text, which might happen to be a user and a password.
    st.binary(max_size=300).map(lambda content: base64.b64encode(content + b"\xff").decode()),
)
_MARKDOWN: Final = st.lists(
    st.tuples(
        st.sampled_from(["", "- ", "# ", "> ", "    ", "1. ", "| "]), st.lists(_HARMLESS, max_size=6).map(" ".join)
    ).map("".join),
    max_size=6,
)


@given(_MARKDOWN, st.sampled_from(["\n", "\r\n", "\r"]))
def test_random_words_hashes_and_ids_are_no_credentials(lines: list[str], end: str) -> None:
    assert not find_secrets(end.join(lines))


@given(st.sampled_from(list(SECRETS.values())), _MARKDOWN, _MARKDOWN, st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_a_credential_is_found_wherever_it_stands(
    secret: tuple[str, str], before: list[str], after: list[str], end: str, data: st.DataObject
) -> None:
    left = data.draw(st.sampled_from(["", "- ", "see ", "`", "| ", "(", "**"]))
    right = data.draw(st.sampled_from(["", " ", "`", " |", ")", "**", ". And then", ", too"]))
    text = end.join([*before, f"{left}{secret[1]}{right}", *after])
    assert find_secrets(text) == [FoundSecret(len(before) + 1, secret[0])]


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "A", "1", "=", "-", "_", ":", "/", " ", "\n", "\r", "\t", '"', "`", "~", ".", "%", "é"),
        *(
            "sk-",
            "_sk-_",
            "sk-proj",
            "eyJ",
            "//",
            "://",
            "https://",
            "://a:",
            "glagent",
            "xoxb-1",
            "AKIA",
            "AC",
            "AKC",
            "Mjk0",
        ),
        *("password", "password=", "password (", "password is ", "--password ", "-u a:", "secret", "token ", "bearer "),
        *("aws", "aws key ", "aws_token_key", 'secret_key="', "session_token", "//a/:_authToken=", f"key{' ' * 500}"),
        *(
            "password for a",
            "password |",
            "|password|",
            "password is ",
            "password `",
            "密码是",
            "| ",
            "api_key ",
            _UUID,
        ),
        *(
            "curl ",
            "curl -u a:",
            "mysql -p",
            "mysql ",
            "login ",
            "machine a login b password ",
            "sshpass -p ",
            "-pass ",
        ),
        *(" -u", "auth: ", 'auth="aaaa', "Basic YWFh", "dp.st.", "memoryd_", "hvs.", "secret_", "fm2_", "re_", "pat"),
        *("sntrys_eyJ", "tskey-a-", ".atlasv1.", "/api/webhooks/1", "N1a", "mfa.", "pat-na", "eyJhdXRocyI6"),
        *("\0", "\u200b", "\u0591\u05b0", "\ufdfa", "\u33ff", "，", "e\u0301", f"password{chr(0xFF1A)}", "a\u200b"),
        "- The user prefers tabs; key facts: `make test`, token budgets, see docs/a.md.\n",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    """Linear in the text, whatever it is: the largest file is searched in CPU time of well under a second."""
    find_secrets("")
    text = (piece * limits.MAX_FILE_BYTES)[: limits.MAX_FILE_BYTES]
    start = time.process_time()
    find_secrets(text)
    assert time.process_time() - start < 2


def test_many_kinds_in_many_lines_take_no_longer() -> None:
    find_secrets("")
    secrets = "\n".join(secret for _, secret in SECRETS.values())
    text = "\n" * (limits.MAX_FILE_BYTES - 2 * len(secrets)) + secrets
    start = time.process_time()
    assert len(find_secrets(text)) == MAX_FOUND
    assert time.process_time() - start < 2


def test_the_library_is_imported_at_first_use_only() -> None:
    """The start of a server pays nothing for it."""
    script = "; ".join(
        (
            "import sys, memoryd_server.engine.secret_scan as scan",
            "assert not {'detect_secrets', 'requests'} & {*sys.modules}",
            "scan.find_secrets('')",
            "assert 'detect_secrets' in sys.modules",
        )
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_many_threads_may_search_at_once() -> None:
    script = f"before\n{SECRETS['AWS'][1]}"
    with ThreadPoolExecutor(8) as threads:
        assert set(map(tuple, threads.map(find_secrets, [script] * 200))) == {(FoundSecret(2, "AWS access key"),)}
