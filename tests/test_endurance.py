"""The short form of `make endurance`: a run under SIGKILL, full disks and clocks that jump."""

import pytest

from tests.endurance import day


@pytest.mark.slow
def test_a_short_day_ends_as_one_left_alone(tmp_path):
    lines = day(steps=4000, kills=2, disks=2, seed=1, folder=tmp_path)
    print("\n".join(lines))
    assert "numbers bit-identical" in lines[3] and not lines[2].endswith(" 0 jumps of clocks")
