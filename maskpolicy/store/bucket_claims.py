"""Claims in a bucket, which only needs create-if-absent.

claims/KEY/NUMBER.json   a claim on the key: the holder, and a random token
claims/KEY/NUMBER-TOKEN  its heartbeat: each refresh writes another content

The claim with the highest number is valid. To take over an expired claim, a process creates the
claim of the next number. If several try, one succeeds. The former holder then finds that number.
A claim that was created below a higher number stays: the holder of the higher one removes it, and
from then on the same name may be the claim of another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from maskpolicy.store.bucket import Bucket, Entry, in_parallel
from maskpolicy.store.claims import LEASE, Claim, SeenClaim, T, U, is_key
from maskpolicy.store.holders import Holder, decoded

FOLDER = "claims"
_SUFFIX = ".json"
_TOKEN = 32  # characters at the start of a claim


class BucketClaims:
    """The claims in one bucket."""

    def __init__(self, bucket: Bucket, lease: float = LEASE) -> None:
        """Take the bucket; `lease` is used for a claim whose content cannot be read."""
        self.place = bucket.url
        self._bucket = bucket
        self._lease = lease
        self._is_prepared = False
        # by key, a claim of this process below a higher number: not held, and taken at the next try
        self._left: dict[str, Claim] = {}

    def each(self, call: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """Return call(item) for each item, several requests at a time."""
        return in_parallel(call, items)

    def read(self, key: str) -> SeenClaim | None:
        """Return the claim on a key, or None; writes nothing."""
        entries = self._bucket.entries(f"{FOLDER}/{key}")
        numbers = _numbers(entries)
        if not numbers:
            return None
        content = self._bucket.read(_name(key, max(numbers)))
        if content is None:  # it was ended meanwhile
            return None
        claim = Claim(key, _token(content), max(numbers))
        if claim == self._left.get(key):
            return None
        state = tuple((entry.name, entry.tag) for entry in entries)
        refreshed = max(entry.modified for entry in entries)
        return SeenClaim(claim, decoded(content[_TOKEN:], self._lease), state, refreshed)

    def keys(self) -> set[str]:
        """Return the keys that have a claim, perhaps an expired one."""
        names = (entry.name.split("/") for entry in self._bucket.entries(FOLDER))
        return {parts[1] for parts in names if len(parts) > 1 and is_key(parts[1])}

    def take(self, key: str, holder: Holder, expired: SeenClaim | None) -> Claim | None:
        """Claim a key, in place of a claim that has expired; None if another process was faster."""
        if not self._is_prepared:
            self._bucket.prepare()
            self._is_prepared = True
        claim = Claim(key, uuid4().hex, expired.claim.number + 1 if expired else 1)
        name = _name(key, claim.number)
        left = self._left.pop(key, None)
        if left is not None and left.number == claim.number and self._is_there(left):
            claim = left
        elif not self._bucket.create(name, claim.token.encode() + holder.encoded()):
            return None
        # since `read`, others may have taken the claim over and ended it, so numbers begin at 1
        others = set(_numbers(self._bucket.entries(f"{FOLDER}/{key}"))) - {claim.number}
        if any(number > claim.number for number in others):
            self._left[key] = claim
            return None
        if expired is not None and self._is_there(expired.claim):
            others = set()
        if others:
            self._bucket.delete([name])
            return None
        return claim if self._is_there(claim) else None

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim is still there, and no claim of the next number."""
        following = _name(claim.key, claim.number + 1)
        # in this order, because ending a claim first removes those that it took over
        return self._bucket.size(following) is None and self._is_there(claim)

    def refresh(self, claim: Claim) -> None:
        """Write another content to the claim's heartbeat."""
        self._bucket.write(_heartbeat(claim), uuid4().hex.encode())

    def end(self, claim: Claim) -> None:
        """Remove a claim, and before it those that it took over."""
        if not self._is_there(claim):
            return
        own = [_name(claim.key, claim.number), _heartbeat(claim)]
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


def _heartbeat(claim: Claim) -> str:
    return f"{FOLDER}/{claim.key}/{claim.number:09d}-{claim.token}"


def _number(name: str) -> int:
    digits = name.rpartition("/")[2][:9]
    return int(digits) if digits.isdecimal() else 0


def _numbers(entries: Iterable[Entry]) -> list[int]:
    """Return the numbers of the claims in a listing; heartbeats do not count."""
    return [_number(entry.name) for entry in entries if entry.name.endswith(_SUFFIX)]


def _token(content: bytes) -> str:
    return content[:_TOKEN].decode("ascii", "replace")
