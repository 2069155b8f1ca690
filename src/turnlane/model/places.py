"""Places in a lane, as ranges: sorted, apart from each other, and few, however many places they cover."""

from __future__ import annotations

from collections.abc import Iterator

Places = tuple[tuple[int, int], ...]


def added(places: Places, first: int, last: int) -> Places:
    """With `first` to `last` too; ranges that touch become one."""
    touching = [(low, high) for low, high in places if high >= first - 1 and low <= last + 1]
    merged = (min([first, *(low for low, _ in touching)]), max([last, *(high for _, high in touching)]))
    return tuple(sorted([merged, *(each for each in places if each not in touching)]))


def beyond(places: Places, place: int) -> Places:
    """Only what lies after `place`."""
    return tuple((max(low, place + 1), high) for low, high in places if high > place)


def newest(places: Places, most: int) -> Places:
    """The last `most` of them."""
    surplus = count(places) - most
    if surplus <= 0:
        return places
    (low, high), *rest = places
    return ((low + surplus, high), *rest) if surplus <= high - low else newest(tuple(rest), most)


def count(places: Places) -> int:
    return sum(high - low + 1 for low, high in places)


def outside(places: Places, first: int, last: int) -> Iterator[int]:
    """Each place from `first` to `last` that no range covers."""
    place = first
    for low, high in places:
        yield from range(place, min(low, last + 1))
        place = max(place, high + 1)
    yield from range(place, last + 1)
