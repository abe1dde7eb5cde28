"""`CITATION.cff`: what the Citation File Format 1.2.0 requires, and what this project states elsewhere."""

from pathlib import Path

import pytest

import keras_highway as kh

yaml = pytest.importorskip("yaml")
FILE = Path(__file__).parents[1] / "CITATION.cff"
# Of https://github.com/citation-file-format/citation-file-format, schema 1.2.0, which allows no others.
ALLOWED = {
    *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords"),
    *("license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact"),
    *("repository-code", "title", "type", "url", "version"),
}
REQUIRED_OF_REFERENCES = {"authors", "title", "type"}
TYPES = {"conference-paper", "article", "generic", "software", "report"}  # those of the schema's list that fit


def test_the_citation_file_is_valid():
    citation = yaml.safe_load(FILE.read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys() <= ALLOWED
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert (citation["version"], citation["license"], citation["title"]) == (
        kh.__version__,
        "Apache-2.0",
        "keras_highway",
    )
    for entry in (citation, *citation["references"]):
        assert entry["authors"], entry["title"]
        for author in entry["authors"]:
            assert author.keys() in ({"name"}, {"family-names", "given-names"})
            assert all(isinstance(value, str) and value for value in author.values())
    for entry in citation["references"]:
        assert entry.keys() >= REQUIRED_OF_REFERENCES and entry["type"] in TYPES
        assert isinstance(entry["year"], int)
    assert len(set(citation["keywords"])) == len(citation["keywords"])


def test_the_papers_are_those_of_the_cards():
    from keras_highway.weights import card

    titles = {entry["title"] for entry in yaml.safe_load(FILE.read_text("utf-8"))["references"]}
    assert all(any(title in text for text in card._PAPERS.values()) for title in titles)
