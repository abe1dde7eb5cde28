"""`list`: where files are, and what a terminal shows."""

from keras_highway.cli import main
from keras_highway.weights import registry


def test_list_says_where_each_file_is(capsys, monkeypatch):
    assert main(["list", "resnet50.a*"]) == 0
    assert capsys.readouterr().out.count("  on the Hub  ") == 3
    monkeypatch.setattr(registry, "local_file", lambda row: None)
    assert main(["list", "mnist10_w*.tvdn"]) == 0
    assert capsys.readouterr().out.count("  in a checkout  ") == 2


def test_long_sources_are_cut_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    assert main(["list", "highway_a"]) == 0
    whole = capsys.readouterr().out.splitlines()[2]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["list", "highway_a"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == f"{whole[:89]}…" and len(whole) > 150
