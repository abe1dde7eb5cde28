"""tests/site/links.py finds what is broken in a built site."""

import runpy
from pathlib import Path

import pytest

LINKS = runpy.run_path(str(Path(__file__).parent / "site" / "links.py"))


@pytest.fixture
def site(tmp_path):
    (tmp_path / "use").mkdir()
    (tmp_path / "a b.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(
        '<h2 id="top">x</h2><a href="use/">u</a><a href="use/#gates">g</a><a href="#top">t</a>'
        '<img src="a%20b.png"><a href="https://keras.io">k</a><link rel="canonical" href="https://keras.io">'
    )
    (tmp_path / "use" / "index.html").write_text('<h2 id="gates">x</h2><a href="..">up</a><a href="mailto:a@b">m</a>')
    return tmp_path


def test_a_whole_site(site, capsys):
    assert LINKS["faults"](site) == ([], 5, 2)
    assert LINKS["main"]([str(site)]) == 0
    assert "2 pages, 5 links inside, 0 broken; 2 links to other sites" in capsys.readouterr().out


def test_links_from_the_root_of_the_address(site, capsys, monkeypatch):
    monkeypatch.setenv("SITE_URL", "https://me.github.io/net/")
    (site / "404.html").write_text('<a href="/net/use/#gates">g</a><a href="/net/">n</a>')
    assert LINKS["main"]([str(site)]) == 0
    (site / "404.html").write_text('<a href="/use/">u</a><a href="/net/nowhere/">n</a>')
    assert LINKS["main"]([str(site)]) == 1
    errors = capsys.readouterr().err
    assert "/use/: not below /net/, where the site is" in errors and "/net/nowhere/: no such page" in errors


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="nowhere/">', "nowhere/: no such page or file"),
        ('<a href="../index.html#end">', "../index.html#end: no such anchor"),
        ('<img src="c.png">', "c.png: no such page or file"),
        ('<script src="https://example.org/x.js"></script>', "fetched from elsewhere: https://example.org/x.js"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "fetched from elsewhere"),
    ],
)
def test_what_is_broken(site, capsys, html, fault):
    (site / "use" / "index.html").write_text(html)
    (site / "index.html").write_text('<a id="top" href="#top">')
    assert LINKS["main"]([str(site)]) == 1
    assert fault in capsys.readouterr().err
