"""Ranges of hashes: which documents a shard has, and where entries of nights may have a document.

A document has the same hash every night. The documents of a shard are those whose hashes start with the same
bits, so it has the same neighbors every night, even if documents come and go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import NamedTuple

from airflow_provider.storage.names import to_bytes

HASH_BITS = 32
MAX_BITS = 16  # for a range
MIN_SOURCES = 8  # in a range of its own: the range of a single document would identify it


class HashRange(NamedTuple):
    """All hashes that start with the same bits.

    :param bits: how many
    :param prefix: which
    """

    bits: int
    prefix: int

    @classmethod
    def of(cls, sources: Collection[str]) -> HashRange:
        """Return the smallest range that has all documents; the whole for a few documents, or none."""
        if len(sources) < MIN_SOURCES:
            return WHOLE
        hashes = list(map(hash_of, sources))
        bits = min(MAX_BITS, HASH_BITS - (min(hashes) ^ max(hashes)).bit_length())
        return cls(bits, hashes[0] >> (HASH_BITS - bits))

    def widen(self, bits: int) -> HashRange:
        """Return the range of fewer bits that contains it."""
        return HashRange(bits, self.prefix >> (self.bits - bits))

    def has(self, hashed: int) -> bool:
        """Return whether a hash is in it."""
        return hashed >> (HASH_BITS - self.bits) == self.prefix

    @property
    def name(self) -> str:
        """Name its folder."""
        return f"{self.prefix:04x}"


WHOLE = HashRange(0, 0)


def hash_of(source: str) -> int:
    """Return the hash of a document, as tables and lists name it."""
    return int.from_bytes(hashlib.blake2b(to_bytes(source), digest_size=HASH_BITS // 8).digest())


def prefixes(sources: Collection[str], bits: int) -> set[str]:
    """Return the names of the ranges of so many bits that have one of these documents."""
    return {HashRange(bits, hash_of(source) >> (HASH_BITS - bits)).name for source in sources}
