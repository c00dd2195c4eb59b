"""Certificates for servers that ask for them."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

__all__ = ["write_certificates"]


def write_certificates(folder: Path) -> None:
    """Write those of a server at 127.0.0.1, of a client, of the authority of both, and of another authority."""
    ours, other = trustme.CA(), trustme.CA()
    server = ours.issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(server.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(key + server.cert_chain_pems[0].bytes())
    ours.cert_pem.write_to_path(folder / "ca.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    for name, authority in (("client", ours), ("stranger", other)):
        authority.issue_cert("someone@example.org").private_key_and_cert_chain_pem.write_to_path(
            folder / f"{name}.pem"
        )
