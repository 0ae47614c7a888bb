"""Claims in a bucket, which need no more of it than create-if-absent.

claims/KEY/NUMBER.json   a claim on the key: the holder, and a random token
claims/KEY/NUMBER-TOKEN  its signs of life: each refresh writes another content

The claim with the highest number counts. Whoever takes over a claim creates that of the next
number, and of several that try one succeeds. The former holder finds the next number there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from maskpolicy.store.bucket import Bucket, Entry, in_parallel
from maskpolicy.store.holders import Holder, decoded
from maskpolicy.store.locks import LEASE, Claim, Seen, T, U, is_key

FOLDER = "claims"
_SUFFIX = ".json"
_TOKEN = 32  # characters at the start of a claim


class BucketClaims:
    """The claims in one bucket."""

    def __init__(self, bucket: Bucket, lease: float = LEASE) -> None:
        """Take the bucket; `lease` is that of a claim which cannot be read."""
        self.place = bucket.url
        self._bucket = bucket
        self._lease = lease
        self._is_prepared = False

    def each(self, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """Return work(item) for each item, several requests at a time."""
        return in_parallel(work, items)

    def look(self, key: str) -> Seen | None:
        """Return the claim on a key, or None; writes nothing."""
        entries = self._bucket.entries(f"{FOLDER}/{key}")
        numbers = _numbers(entries)
        if not numbers:
            return None
        content = self._bucket.read(_name(key, max(numbers)))
        if content is None:  # it has ended meanwhile
            return None
        claim = Claim(key, _token(content), max(numbers))
        sight = tuple((entry.name, entry.tag) for entry in entries)
        heard = max(entry.modified for entry in entries)
        return Seen(claim, decoded(content[_TOKEN:], self._lease), sight, heard)

    def keys(self) -> set[str]:
        """Return the keys that have a claim, which may be over."""
        names = (entry.name.split("/") for entry in self._bucket.entries(FOLDER))
        return {parts[1] for parts in names if len(parts) > 1 and is_key(parts[1])}

    def take(self, key: str, holder: Holder, over: Seen | None) -> Claim | None:
        """Claim a key in place of a claim that is over; None if another process was faster."""
        if not self._is_prepared:
            self._bucket.prepare()
            self._is_prepared = True
        claim = Claim(key, uuid4().hex, over.claim.number + 1 if over else 1)
        name = _name(key, claim.number)
        if not self._bucket.create(name, claim.token.encode() + holder.encoded()):
            return None
        # since `look`, others may have taken the claim over, ended theirs, and begun at 1 again
        others = set(_numbers(self._bucket.entries(f"{FOLDER}/{key}"))) - {claim.number}
        if over is not None and self._is_there(over.claim):
            others -= set(range(claim.number))
        if others:
            self._bucket.delete([name])
            return None
        return claim

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim is still there, and none of the next number."""
        following = _name(claim.key, claim.number + 1)
        # in this order: whoever ends a claim first removes those that it took over
        return self._bucket.size(following) is None and self._is_there(claim)

    def refresh(self, claim: Claim) -> None:
        """Write another content to the claim's signs of life."""
        self._bucket.write(_signs(claim), uuid4().hex.encode())

    def end(self, claim: Claim) -> None:
        """Remove a claim, and before it those that it took over."""
        if not self._is_there(claim):
            return
        own = [_name(claim.key, claim.number), _signs(claim)]
        if claim.number > 1:
            entries = self._bucket.entries(f"{FOLDER}/{claim.key}")
            older = [each.name for each in entries if _number(each.name) < claim.number]
            self._bucket.delete(older)
        self._bucket.delete(own)

    def _is_there(self, claim: Claim) -> bool:
        content = self._bucket.read(_name(claim.key, claim.number))
        return content is not None and _token(content) == claim.token


def _name(key: str, number: int) -> str:
    return f"{FOLDER}/{key}/{number:09d}{_SUFFIX}"


def _signs(claim: Claim) -> str:
    return f"{FOLDER}/{claim.key}/{claim.number:09d}-{claim.token}"


def _number(name: str) -> int:
    digits = name.rpartition("/")[2][:9]
    return int(digits) if digits.isdecimal() else 0


def _numbers(entries: Iterable[Entry]) -> list[int]:
    """Return the numbers of claims in a listing; signs of life are none."""
    return [_number(entry.name) for entry in entries if entry.name.endswith(_SUFFIX)]


def _token(content: bytes) -> str:
    return content[:_TOKEN].decode("ascii", "replace")
