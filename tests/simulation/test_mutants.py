"""The test of the test: each planted mistake must be seen by the simulation."""

from __future__ import annotations

import pytest

from turnlane.errors import InvalidInput
from turnlane.model.lane import Lane
from turnlane.testing.mutants import LANE, MUTANTS, Mutant, hunt, planted

SEEDS_MAX = 300


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_the_simulation_sees(mutant: Mutant) -> None:
    broken = await hunt(mutant, range(SEEDS_MAX))
    assert broken is not None, f"{mutant.name!r} survived {SEEDS_MAX} histories: a checker is missing"


def test_no_two_mutants_are_the_same() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.where, mutant.before, mutant.after) for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_is_gone_when_its_context_is_closed() -> None:
    before = Lane.claim.__code__
    with planted(MUTANTS[0]):
        pass
    with planted(Mutant("no epoch", f"{LANE}.claim", "self.epoch += 1", "pass")):
        assert Lane.claim.__code__ is not before
    assert Lane.claim.__code__ is before


def test_a_mutant_that_no_longer_applies_is_a_failure() -> None:
    outdated = Mutant("outdated", f"{LANE}.claim", "self.epoch += 2", "pass")
    with pytest.raises(InvalidInput, match="change the mutant with the engine"), planted(outdated):
        pass
