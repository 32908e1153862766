"""Create the cluster's certificate authority, a server certificate, and a client certificate for each component.

The keys are elliptic-curve keys: creating them takes no noticeable time, and a connection needs less CPU time than with RSA.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = timedelta(days=3650)
_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
SERVICE_IP = "10.96.0.1"
"""Cluster IP of the Service `kubernetes`: the first address of the API server's service range."""


class Authority:
    """A certificate authority. It writes each certificate as <name>.crt and <name>.key into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("ome-local", ())
        public = self._key.public_key()
        self._id = x509.SubjectKeyIdentifier.from_public_key(public)
        ca = (
            _builder(self._name, self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .add_extension(self._id, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        _write(folder / "ca.key", _private(self._key))
        _write(folder / "ca.crt", ca.public_bytes(serialization.Encoding.PEM))

    def client(self, file: str, user: str, groups: Sequence[str] = ()) -> None:
        """Write a client certificate. The API server reads the common name as user and the organizations as groups."""
        self._issue(file, _subject(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH], None)

    def server(self, file: str, addresses: Sequence[str] = ()) -> None:
        """Write a server certificate for loopback addresses, for the Service `kubernetes`, and for the additional
        addresses.
        """
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in _SERVER_NAMES]
        names += _addresses(dict.fromkeys(["127.0.0.1", SERVICE_IP, *addresses]))
        self._issue(file, _subject(file, ()), [ExtendedKeyUsageOID.SERVER_AUTH], x509.SubjectAlternativeName(names))

    def member(self, file: str, *names: str) -> None:
        """Write a certificate that is valid both for a server, on loopback and under these DNS names, and for a client. It
        is for members of etcd, which are servers and also clients of their own gRPC endpoint.
        """
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        known = [*_addresses(["127.0.0.1"]), *(x509.DNSName(name) for name in names)]
        self._issue(file, _subject(file, ()), both, x509.SubjectAlternativeName(known))

    def _issue(
        self, file: str, subject: x509.Name, uses: Iterable[x509.ObjectIdentifier], names: x509.SubjectAlternativeName | None
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._id), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        _write(self.folder / f"{file}.key", _private(key))
        _write(self.folder / f"{file}.crt", signed.public_bytes(serialization.Encoding.PEM))


def service_account_key(folder: Path) -> None:
    """Write sa.key, which signs ServiceAccount tokens, and sa.pub, which verifies them. The keys stay the same, so that
    tokens stay valid after a restart.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write(folder / "sa.key", _private(key))
    _write(folder / "sa.pub", public)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # the clocks of a machine and of its containers may differ
        .not_valid_after(now + _LIFE)
    )


def _addresses(ips: Iterable[str]) -> list[x509.GeneralName]:
    return [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]


def _subject(user: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
