"""Codecs for stored values: `App(codecs=[Zlib(), Encrypted(key)])`. Compress first: what is encrypted is random."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install
from stepwell.values.bounds import check_whole

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class Zlib:
    """Compresses values of more than `above` bytes, if that makes them smaller."""

    name = "zlib"

    def __init__(self, *, above: int = 2048, level: int = 6) -> None:
        self._above = check_whole(above, "above", 0)
        self._level = check_whole(level, "level", 1, 9)

    def encode(self, data: bytes) -> bytes | None:
        """Compress a large value."""
        if len(data) <= self._above:
            return None
        packed = zlib.compress(data, self._level)
        # Base64 makes it a third larger.
        return packed if len(packed) * 4 < len(data) * 3 else None

    def decode(self, data: bytes) -> bytes:
        """Decompress a value."""
        return zlib.decompress(data)


class Encrypted:
    """Encrypts every value with Fernet, of the package `cryptography`: AES in CBC mode with an HMAC.

    The first key encrypts, and each of the keys decrypts. To rotate keys, give the new one first and deploy that; drop
    the old one when no value that it encrypted is kept any longer.
    """

    name = "fernet"

    def __init__(self, *keys: str | bytes) -> None:
        try:
            from cryptography.fernet import Fernet, MultiFernet
        except ImportError:
            raise ConfigError(f"Encrypted needs cryptography: {how_to_install('encryption')}") from None
        if not keys:
            raise ConfigError("Encrypted(...) needs a key: Fernet.generate_key() makes one")
        try:
            self._fernet: MultiFernet = MultiFernet([Fernet(key) for key in keys])
        except (ValueError, TypeError) as error:
            raise ConfigError(f"Encrypted(...): {error}: Fernet.generate_key() makes a key") from None

    def encode(self, data: bytes) -> bytes:
        """Encrypt a value."""
        return self._fernet.encrypt(data)

    def decode(self, data: bytes) -> bytes:
        """Decrypt a value."""
        return self._fernet.decrypt(data)
