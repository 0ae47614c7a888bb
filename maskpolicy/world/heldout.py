"""Text like the general corpus's that no corpus holds: entries about further people, situations."""

from __future__ import annotations

from collections.abc import Iterator

from maskpolicy.world.entries import Entry, entries
from maskpolicy.world.people import person
from maskpolicy.world.pools import build
from maskpolicy.world.settings import Settings
from maskpolicy.world.situations import situations


def held_out(settings: Settings, count: int) -> Iterator[Entry]:
    """Yield one entry about each of at most `count` people whom no other text mentions.

    Their names are put together from the same parts, their facts' values come from the same pools:
    as in the general corpus, only the facts are new. There are as many as there are full names. If
    the general corpus has situations, a like share of the `count` are situations, at the end.
    """
    pools = build(settings)
    others = round(count * settings.situations)
    taken = settings.people + settings.general_people + settings.teachers
    page = 1 + sum(settings.count(kind) for kind in settings.kinds)
    for number in range(min(count - others, len(pools.names) - taken)):
        subject = person(settings, pools, taken + number, page + number)
        yield entries(subject, 1, settings.facts, settings.seed, settings.endings)[0]
    yield from situations(settings, "held-out", others)
