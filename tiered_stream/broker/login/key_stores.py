"""Reader of files with key and trust stores in PEM, PKCS12 or JKS (Kafka: `DefaultSslEngineFactory.FileBasedStore`).

Java's key stores of type JKS (JDK: `sun.security.provider.JavaKeyStore`) have this form:

    u4 0xFEEDFEED, u4 version (1 or 2), u4 count, then `count` entries, then a digest of 20 bytes
    entry         u4 tag, u2 length and alias, u8 date; tag 1: key, chain; tag 2: certificate
    key           u4 length, EncryptedPrivateKeyInfo (DER): SEQUENCE { AlgorithmIdentifier, OCTET STRING }
    chain         u4 count, certificates
    certificate   version 2: u2 length and type; u4 length, X.509 (DER)
    digest        SHA-1 of the password (UTF-16), "Mighty Aphrodite" and all bytes before the digest

An encrypted key (JDK: `KeyProtector`) has three parts: a salt of 20 bytes; the PKCS#8 key, xored with a sequence of
digests; and SHA-1(password, key). The first digest is SHA-1(password, salt), and each further digest is
SHA-1(password, previous digest).
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from base64 import encodebytes
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.errors import ConfigurationError
from tiered_stream.records.flexible_versions import Reader

MAGIC = b"\xfe\xed\xfe\xed"

_VERSIONS = (1, 2)
_PRIVATE_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = _SALT_BYTES = hashlib.sha1().digest_size
_WHITENER = b"Mighty Aphrodite"
_DATE_BYTES = 8
_SEQUENCE, _OCTETS = 0x30, 0x04
_KEY_PROTECTOR = bytes.fromhex("300e060a2b060104012a021101010500")
"""AlgorithmIdentifier (DER) of 1.3.6.1.4.1.42.2.17.1.1, the only key encryption in JKS stores."""
_MAX_BYTES = 16 << 20
_PEM_MARK = b"-----BEGIN"


@dataclass(frozen=True, slots=True)
class JksKey:
    """Private key of a JKS store, still encrypted, and its certificate chain.

    `alias` is the key's name in the store. `chain` has certificates (DER), the key's own certificate first.
    """

    alias: str
    encrypted: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)

    def decrypt(self, password: str) -> bytes:
        """Decrypt the private key and return it (PKCS#8, DER).

        Raises:
            ConfigurationError: the password is wrong.
        """
        secret, encrypted = password.encode("utf-16-be", "surrogatepass"), self.encrypted
        salt, body = encrypted[:_SALT_BYTES], encrypted[_SALT_BYTES:-_DIGEST_BYTES]
        stream, last = bytearray(), salt
        while len(stream) < len(body):
            last = hashlib.sha1(secret + last).digest()
            stream += last
        key = bytes(byte ^ pad for byte, pad in zip(body, stream, strict=False))
        if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), encrypted[-_DIGEST_BYTES:]):
            raise ConfigurationError("the password does not fit the private key")
        return key


@dataclass(frozen=True, slots=True)
class JksStore:
    """Content of a JKS store: private keys with their certificate chains, and trusted certificates (DER)."""

    keys: tuple[JksKey, ...]
    certificates: tuple[bytes, ...]


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Decode a JKS store, and check its digest with `password`.

    If `password` is None, the digest is not checked, as in Java.

    Raises:
        ConfigurationError: the bytes are not a JKS store, or the password is wrong.
    """
    if password is not None and not hmac.compare_digest(
        _digest(data[:-_DIGEST_BYTES], password), data[-_DIGEST_BYTES:]
    ):
        raise ConfigurationError("the password is wrong, or the file was changed")
    try:
        return _read(Reader(data[:-_DIGEST_BYTES]))
    except ValueError as error:
        raise ConfigurationError(f"it is no JKS store: {error}") from error


def _digest(content: bytes, password: str) -> bytes:
    return hashlib.sha1(password.encode("utf-16-be", "surrogatepass") + _WHITENER + content).digest()


def _read(reader: Reader) -> JksStore:
    magic, version, count = reader.take(4), _number(reader), _number(reader)
    if magic != MAGIC or version not in _VERSIONS:
        raise ValueError("it does not begin as one")
    keys, certificates = [], []
    for _ in range(count):
        tag = _number(reader)
        alias = reader.take(_number(reader, 2)).decode("utf-8", "replace")
        reader.skip(_DATE_BYTES)
        if tag == _PRIVATE_KEY:
            encrypted = _encrypted_key(reader.take(_number(reader)))
            chain = tuple(_certificate(reader, version) for _ in range(_number(reader)))
            keys.append(JksKey(alias, encrypted, chain))
        elif tag == _CERTIFICATE:
            certificates.append(_certificate(reader, version))
        else:
            raise ValueError(f"an entry has the tag {tag}")
    return JksStore(tuple(keys), tuple(certificates))


def _certificate(reader: Reader, version: int) -> bytes:
    if version > 1:
        reader.skip(_number(reader, 2))
    return reader.take(_number(reader))


def _number(reader: Reader, size: int = 4) -> int:
    return int.from_bytes(reader.take(size), "big")


def _encrypted_key(info: bytes) -> bytes:
    """Return the encrypted key in an EncryptedPrivateKeyInfo (its OCTET STRING). Raises ValueError if malformed."""
    content = _der(Reader(info), _SEQUENCE)
    if content.take(len(_KEY_PROTECTOR)) != _KEY_PROTECTOR:
        raise ValueError("a private key is encrypted in another way than JKS's own")
    octets = _der(content, _OCTETS)
    encrypted = octets.take(len(octets.data))
    if len(encrypted) <= _SALT_BYTES + _DIGEST_BYTES:
        raise ValueError("a private key is cut off")
    return encrypted


def _der(reader: Reader, tag: int) -> Reader:
    """Read the next DER value, and return a reader of its content. Raises ValueError if its tag is not `tag`."""
    actual_tag, length = reader.take(2)
    if actual_tag != tag:
        raise ValueError(f"DER has the tag {actual_tag} where {tag} belongs")
    if length >= 0x80:
        length = int.from_bytes(reader.take(length & 0x7F), "big")
    return Reader(reader.take(length))


if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates


class StoreType(StrEnum):
    """Type of a key or trust store.

    As with Java's `keystore.type.compat`, the settings may name JKS for a PKCS12 store, and PKCS12 for a JKS store.
    """

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


@dataclass(frozen=True, slots=True)
class StoreFile:
    """Content of a key or trust store's file.

    `name` is `keystore` or `truststore`. `location` is the file's path. `kind` is the type as recognized from the
    content. `password` is None for PEM, or if no password is given.
    """

    name: str
    location: str
    kind: StoreType
    content: bytes = field(repr=False)
    password: str | None = field(repr=False)

    def fault(self, why: str) -> ConfigurationError:
        """Return an error that names the store's file and type; `why` is the reason why the store cannot be used."""
        return ConfigurationError(f"kafka.ssl.{self.name}.location = {self.location!r} ({self.kind}): {why}")


def store_file(values: ConfigValues, name: str) -> StoreFile | None:
    """Read the file that `ssl.NAME.location` names, and find the store's type from the content.

    `values` are the client properties. `name` stands for NAME: `keystore` or `truststore`. The result is None if the
    location is not given.

    Raises:
        ConfigurationError: the file cannot be read, is larger than 16 MiB, or does not have the type in
            `ssl.NAME.type`.
    """
    location, declared = values.text(f"ssl.{name}.location"), values.text(f"ssl.{name}.type").upper()
    if not location:
        return None
    content = read_file(f"kafka.ssl.{name}.location = {location!r}", location, _MAX_BYTES + 1)
    kind = _kind(content)
    allowed = {"": tuple(StoreType), "PEM": (StoreType.PEM,)}.get(declared, (StoreType.PKCS12, StoreType.JKS))
    if len(content) > _MAX_BYTES or kind is None or kind not in allowed or declared not in ("", *StoreType):
        raise ConfigurationError(
            f"kafka.ssl.{name}.location = {location!r}, kafka.ssl.{name}.type = {declared or 'JKS'!r}: the file holds "
            f"{kind or 'no store that can be read'}; {', '.join(StoreType)} of at most {_MAX_BYTES >> 20} MiB can be"
        )
    password = None if kind is StoreType.PEM else values.secret(f"ssl.{name}.password")
    return StoreFile(name, location, kind, content, password)


def read_file(setting: str, path: str, max_bytes: int) -> bytes:
    """Read the file that a setting names, and return at most its first `max_bytes` bytes.

    Raises:
        ConfigurationError: the file cannot be read; the message begins with `setting`.
    """
    try:
        with open(path, "rb") as file:
            return file.read(max_bytes)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{setting}: there is no such file on this machine ({reason})") from error


def _kind(content: bytes) -> StoreType | None:
    if content.startswith(MAGIC):
        return StoreType.JKS
    if content[:1] == b"\x30":  # DER begins with the tag SEQUENCE
        return StoreType.PKCS12
    return StoreType.PEM if _PEM_MARK in content else None


def trusted_certificates(store: StoreFile) -> str:
    """Return the certificates (PEM) of a JKS or PKCS12 trust store.

    Raises:
        ConfigurationError: the store cannot be opened, or has no certificates.
    """
    if store.kind is StoreType.JKS:
        certificates = _jks(store).certificates
    else:
        from cryptography.hazmat.primitives.serialization import Encoding

        additional = _pkcs12(store).additional_certs
        certificates = tuple(entry.certificate.public_bytes(Encoding.DER) for entry in additional)
    if not certificates:
        raise store.fault("it has no trusted certificate")
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates))


def private_key(store: StoreFile, values: ConfigValues) -> tuple[str, str]:
    """Return the decrypted private key and its certificate chain, both in PEM, from a JKS or PKCS12 key store.

    The key's password is the property `ssl.key.password` in `values`, and otherwise the store's password.

    Raises:
        ConfigurationError: the store cannot be opened, does not have exactly one private key, or a password is wrong or
            missing.
    """
    if store.password is None:
        raise store.fault("kafka.ssl.keystore.password is missing")
    key_password = values.secret("ssl.key.password") or store.password
    if store.kind is StoreType.JKS:
        return _key_of_jks(store, key_password)
    if key_password != store.password:
        raise store.fault("kafka.ssl.key.password must be kafka.ssl.keystore.password: a PKCS12 store has one password")
    return _key_of_pkcs12(store)


def _key_of_jks(store: StoreFile, password: str) -> tuple[str, str]:
    keys = _jks(store).keys
    if len(keys) != 1:
        aliases = f" ({', '.join(repr(key.alias[:50]) for key in keys[:5])})" if keys else ""
        raise store.fault(f"it has {len(keys)} private keys{aliases} where one belongs")
    try:
        key = keys[0].decrypt(password)
    except ConfigurationError as error:
        raise store.fault(f"{error}: correct kafka.ssl.key.password") from error
    pem = f"-----BEGIN PRIVATE KEY-----\n{encodebytes(key).decode()}-----END PRIVATE KEY-----\n"
    return pem, "".join(map(ssl.DER_cert_to_PEM_cert, keys[0].chain))


def _key_of_pkcs12(store: StoreFile) -> tuple[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    opened = _pkcs12(store)
    if opened.key is None or opened.cert is None:
        raise store.fault("it has no private key")
    chain = [opened.cert, *opened.additional_certs]
    key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key.decode(), "".join(entry.certificate.public_bytes(Encoding.PEM).decode() for entry in chain)


def _jks(store: StoreFile) -> JksStore:
    try:
        return read_jks(store.content, store.password)
    except ConfigurationError as error:
        raise store.fault(f"{error}; check kafka.ssl.{store.name}.password") from error


def _pkcs12(store: StoreFile) -> PKCS12KeyAndCertificates:
    # Imported here, because few users have such a store.
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(store.content, store.password.encode() if store.password else None)
    except Exception as error:  # with malformed bytes, the parser may raise any exception
        problem = "is wrong" if store.password else "is missing"
        raise store.fault(
            f"it could not be opened: kafka.ssl.{store.name}.password {problem}, or the file is damaged"
        ) from error
