"""Vocabulary, spelling, corpus files, parallel streams, distinct words."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_highway.data.ptb import batchify, deduplicate, every, is_treebank, load_corpus
from keras_highway.data.vocabulary import LONGEST, Strange, Vocabulary, words_of

TEXT = " the cat sat on the mat \n a <unk> cat \n"
SMALL = Vocabulary.of([w for line in words_of(TEXT) for w in line])


def corpus(folder, **texts):
    for split in ("train", "valid", "test"):
        text = texts.get(split, TEXT)
        if text is not None:
            (folder / f"{split}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_the_treebank_has_the_published_sizes(data_dir):
    if not (data_dir / "ptb").is_dir():
        pytest.skip("needs the Penn Treebank: KERAS_HIGHWAY_DATA/ptb with train.txt, valid.txt, test.txt")
    treebank = load_corpus(data_dir)
    vocabulary = treebank.vocabulary
    assert is_treebank(treebank)
    assert [len(split) for split in treebank[1:]] == [929_589, 73_760, 82_430]
    assert (len(vocabulary.words), len(vocabulary.characters), vocabulary.word_length) == (10_000, 51, 21)
    assert [int((split == 1).sum()) for split in treebank[1:]] == [42_068, 3_370, 3_761]  # an <eos> a line
    assert batchify(treebank.train)[0].shape == (1327, 20, 35)
    assert batchify(treebank.valid)[0].shape == (105, 20, 35)
    sizes = {len(deduplicate(batch).words) for batch in batchify(treebank.train)[0]}
    assert sizes == {320, 384, 448}


def test_words_and_characters_are_numbered_as_they_appear():
    assert SMALL.words == ("<unk>", "<eos>", "the", "cat", "sat", "on", "mat", "a")
    assert SMALL.characters == ("<pad>", "<start>", "<end>", "<unk>", "<eos>", *"thecasonm")
    assert SMALL.word_length == 5
    np.testing.assert_array_equal(SMALL.ids(["cat", "<eos>", "dog", "<unk>"]), [3, 1, 0, 0])


def test_a_word_is_start_characters_end_padding():
    spelled = SMALL.spell(["cat", "a", "<unk>", "<eos>"])
    np.testing.assert_array_equal(spelled, [[1, 8, 9, 5, 2], [1, 9, 2, 0, 0], [1, 3, 2, 0, 0], [1, 4, 2, 0, 0]])
    np.testing.assert_array_equal(SMALL.table[[3, 7, 0, 1]], spelled)


def test_words_never_seen_are_read():
    # x is not a character of the text: it is read as <unk>'s; of "mattes" only three characters fit.
    np.testing.assert_array_equal(
        SMALL.spell(["hat", "max", "mattes"]), [[1, 6, 9, 5, 2], [1, 13, 9, 3, 2], [1, 13, 9, 5, 2]]
    )
    assert SMALL.strange(["hat", "max", "mattes", "cat", "<unk>"]) == Strange(unseen=3, unreadable=1, cut=1)


def test_the_longest_word_is_capped():
    long = Vocabulary.of(["a" * 1200, "b"])  # an address, or an encoded picture
    assert Vocabulary.from_json(long.to_json()) == long
    with pytest.raises(ValueError, match="at most 5,000 characters, not 5,001"):
        Vocabulary.of(["a" * 5_001, "b"])  # before it is trained
    vocabulary = Vocabulary.of(["a" * 100, "b"])
    assert vocabulary.word_length == LONGEST == 65
    assert vocabulary.table[2].tolist() == [1, *[5] * 63, 2]


def test_a_vocabulary_comes_back_from_json():
    again = Vocabulary.from_json(SMALL.to_json())
    assert again == SMALL and again.fingerprint == SMALL.fingerprint
    other = Vocabulary(SMALL.words, SMALL.characters, 6)
    assert other.fingerprint != SMALL.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": ["the", "<eos>"]}, "'<unk>', '<eos>' and then others"),
        ({"characters": ["a", "b"]}, "the marks"),
        ({"word_length": "long"}, "not a vocabulary"),
    ],
)
def test_broken_vocabularies_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_json(json.dumps({**json.loads(SMALL.to_json()), **change}))
    with pytest.raises(ValueError, match="not a vocabulary"):
        Vocabulary.from_json("{}")


def test_only_line_feeds_end_sentences():
    assert words_of("a b\r\nc\x0bd e\n\nf") == [
        ["a", "b", "<eos>"],
        ["c", "d", "e", "<eos>"],
        ["<eos>"],
        ["f", "<eos>"],
    ]


def test_a_corpus_of_ones_own(tmp_path, monkeypatch):
    corpus(tmp_path, valid="the dog\n", test="a mat")
    mine = load_corpus(tmp_path)
    assert mine.vocabulary == SMALL
    np.testing.assert_array_equal(mine.train, [2, 3, 4, 5, 2, 6, 1, 7, 0, 3, 1])
    np.testing.assert_array_equal(mine.valid, [2, 0, 1])  # a word that training lacks is <unk>
    np.testing.assert_array_equal(mine.test, [7, 6, 1])  # the last line feed may be missing
    (tmp_path / "test.txt").rename(tmp_path / "ptb.test.txt")
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(tmp_path))
    np.testing.assert_array_equal(load_corpus().test, mine.test)


def test_broken_corpora_are_refused(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"valid\.txt"):
        load_corpus(corpus(tmp_path, valid=None))
    with pytest.raises(ValueError, match=r"valid\.txt is not UTF-8: byte 6, in line 2, is 0xff"):
        load_corpus(corpus(tmp_path, valid=b"a cat\n\xff"))
    for empty in ("", " \n \n"):
        with pytest.raises(ValueError, match=r"test\.txt holds no words"):
            load_corpus(corpus(tmp_path, test=empty))
    with pytest.raises(ValueError, match="without any"):
        load_corpus(corpus(tmp_path, train="<unk>\n"))
    monkeypatch.delenv("KERAS_HIGHWAY_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="KERAS_HIGHWAY_DATA"):
        load_corpus()


def test_streams_continue_from_batch_to_batch():
    inputs, targets = batchify(np.arange(100, 114), batch=2, steps=3)
    np.testing.assert_array_equal(inputs, [[[100, 101, 102], [106, 107, 108]], [[103, 104, 105], [109, 110, 111]]])
    np.testing.assert_array_equal(targets, [[[101, 102, 103], [107, 108, 109]], [[104, 105, 106], [110, 111, 100]]])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 8))
def test_distinct_words_make_the_batch(words, multiple):
    batch = np.array(words)[None]
    rows, positions = deduplicate(batch, multiple)
    np.testing.assert_array_equal(rows[positions], batch)
    needed = len(set(words))
    assert needed <= len(rows) <= len(words)
    assert len(rows) % multiple == 0 or len(rows) == len(words)
    plain = every(batch)
    np.testing.assert_array_equal(plain.words[plain.positions], batch)
    assert len(plain.words) == batch.size
