"""URLs of stores in messages and logs: no secret is in them, however the URL is written."""

from __future__ import annotations

import pytest

from memoryd_server.stores.urls import masked

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:hunter2@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann@corp:hunter2@host/db", "postgresql://ann@corp:***@host/db"),
        ("postgresql://ann@host/db?password=hunter2", "postgresql://ann@host/db?password=***"),
        ("postgresql://ann@host/db?PassWord=hunter2", "postgresql://ann@host/db?PassWord=***"),
        ("postgresql://ann@host/db?p%61ssword=hunter2", "postgresql://ann@host/db?p%61ssword=***"),
        ("postgresql:///db?user=ann&password=hunter2", "postgresql:///db?user=ann&password=***"),
        (
            "postgresql://ann:hunter2@host/db?sslmode=require&sslpassword=hunter2&colour=green",
            "postgresql://ann:***@host/db?sslmode=require&sslpassword=***&colour=green",
        ),
        ("mysql://ann@host/db?passwd=hunter2", "mysql://ann@host/db?passwd=***"),
        ("redis://:hunter2@host:6379/0", "redis://:***@host:6379/0"),
        ("rediss://ann:hunter2@one:1,two:2/?prefix=mine:", "rediss://ann:***@one:1,two:2/?prefix=mine:"),
        ("redis://one:7000,two:7001/", "redis://one:7000,two:7001/"),
        ("redis://host?password=hunter2&ssl_password=hunter2", "redis://host?password=***&ssl_password=***"),
        (
            "mysql://ann@host/db?auth_token=hunter2&api_secret=hunter2",
            "mysql://ann@host/db?auth_token=***&api_secret=***",
        ),
        ("redis://:hunter2@a:7001,b:7002/0", "redis://:***@a:7001,b:7002/0"),
        ("mongodb://ann:hunter2@a:1,b:2/db?w=majority", "mongodb://ann:***@a:1,b:2/db?w=majority"),
        (
            "mongodb://a/?authMechanismProperties=AWS_SESSION_TOKEN:hunter2&tlsCertificateKeyFilePassword=hunter2",
            "mongodb://a/?authMechanismProperties=***&tlsCertificateKeyFilePassword=***",
        ),
    ],
)
def test_of_a_url_only_its_secrets_are_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2/x@hunter2@host/db",
        "postgresql://ann:x?hunter2@host/db",
        "postgresql://ann:x#hunter2@host/db",
        "postgresql://ann:x&token=y&hunter2@host/db",
        "postgresql://ann:x?token=hunter2@host/db",
        "mysql://host:3306/db?password=x@hunter2",
        "postgresql://ann:hunter2",
        "redis://ann:7,hunter2",
        "postgresql://ann:hunter2/db",
        "postgresql:/ann:hunter2@host/db",
        "redis://ann:1,hunter2",
        "redis://ann:1,hunter2/0",
        "postgresql:ann:hunter2@host/db",
        "post gresql://ann:hunter2@host/db",
        "ann:hunter2@host/db",
    ],
)
def test_a_url_that_is_not_well_formed_shows_no_secret_either(url: str) -> None:
    assert SECRET not in masked(url)


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "sqlite:////var/lib/ann@home:8/memoryd.db",
        "sqlite:///file:memoryd.db?mode=rw&uri=true",
        "postgresql://host",
        "postgresql://ann@host:5432/db?application_name=memoryd",
        "postgresql://ann@[::1]:5432/db",
        "postgresql://[::1]:5432/db?search_path=a:b",
        "redis://a.example:7001,b-2.example:7002,127.0.0.1:7003/0",
        "mongodb://ann@a:1,b:2?x=y",
        "main",
    ],
)
def test_what_holds_no_secret_is_shown_as_it_is(url: str) -> None:
    assert masked(url) == url
