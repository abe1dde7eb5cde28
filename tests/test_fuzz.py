"""The short form of `make fuzz`: seeded attacks on what comes from outside."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "fuzz"))

import outside_files
import weight_files


def test_a_corrupted_weight_file_is_refused_or_identical():
    counts = weight_files.run(range(40))
    assert weight_files.defects(counts) == {}
    kinds = {kind for kind, _ in counts}
    assert len(kinds) > 8 and sum(n for (_, ending), n in counts.items() if ending == "refused") > 20


def test_an_attacked_file_is_refused_in_a_sentence_or_usable():
    counts = outside_files.run(range(25))
    assert outside_files.defects(counts) == {}
    assert len({file for file, _ in counts}) == 6
    assert all(counts[reader.file, "refused"] > 10 for reader in outside_files.READERS)
