"""Certificates for tests, made when they are needed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import trustme


class Authority:
    """A CA, and the files of certificates from it."""

    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self.path = directory / "ca.pem"
        self.path.write_bytes(self.pem)

    @property
    def pem(self) -> bytes:
        """The CA's own certificate."""
        return self._ca.cert_pem.bytes()

    def issue(self, directory: Path, *names: str, expires: datetime | None = None) -> Pair:
        """Writes a certificate for the names, with its key, over what the directory holds of the kind.

        Without names it is for this machine's loopback. One that expires began a year before.
        """
        begin = None if expires is None else expires.replace(year=expires.year - 1)
        issued = self._ca.issue_cert(*(names or ("127.0.0.1", "localhost")), not_before=begin, not_after=expires)
        directory.mkdir(exist_ok=True)
        pair = Pair(directory / "server.pem", directory / "server.key")
        pair.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(issued.private_key_pem.bytes())
        return pair


class Pair:
    """The files of a certificate and its key."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key

    @property
    def flags(self) -> tuple[str, ...]:
        """What `memoryd serve` is given."""
        return "--tls-certificate", str(self.certificate), "--tls-key", str(self.key)
