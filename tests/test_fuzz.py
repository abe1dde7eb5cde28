"""The short form of `make fuzz`: seeded attacks on what comes from outside."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "fuzz"))

import weight_files


def test_a_corrupted_weight_file_is_refused_or_identical():
    counts = weight_files.run(range(40))
    assert weight_files.defects(counts) == {}
    kinds = {kind for kind, _ in counts}
    assert len(kinds) > 8 and sum(n for (_, ending), n in counts.items() if ending == "refused") > 20
