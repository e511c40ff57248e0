"""The clock that compiled loops look at."""

from __future__ import annotations

import pytest

from hf_guided.automaton.limits import LOOK, WorkMeter, looking


class Refusing(WorkMeter):
    def look(self) -> None:
        raise TimeoutError


class Nesting(WorkMeter):
    """As a signal's handler that compiles while a loop looks at the clock."""

    def look(self) -> None:
        with pytest.raises(TimeoutError), looking(Refusing()) as look:
            assert LOOK(look)() == 1


def test_what_a_look_raises_is_raised_when_the_loops_have_stopped() -> None:
    with pytest.raises(TimeoutError), looking(Refusing()) as look:
        assert LOOK(look)() == LOOK(look)() == 1
    with looking(WorkMeter()) as look:
        assert LOOK(look)() == 0


def test_loops_inside_a_look_leave_the_outer_ones_as_they_were() -> None:
    with looking(Nesting()) as look:
        assert LOOK(look)() == LOOK(look)() == 0
