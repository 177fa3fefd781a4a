"""File names: safe on every system, apart on every system, reversible."""

import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.stores.conformance import HOSTILE
from backstory.stores.names import MAX_STEM, file_stem, key_of, scope_folder, scope_of

keys = st.text(st.one_of(st.characters(), st.sampled_from("aAbB.:/\\%+=~@-_ 张\0\ud800")), min_size=1)


@pytest.mark.parametrize(
    ("key", "stem"),
    [
        ("telegram:12345", "telegram=12345"),
        ("cli:direct", "cli=direct"),
        ("whatsapp:+4930", "whatsapp=%2b4930"),
        ("Alice", "+alice"),
        ("微信:张三", "微信=张三"),
        ("bob@example.com", "bob@example.com"),
        ("..", "%2e%2e"),
        ("a/b", "a%2fb"),
        ("con", "%63on"),
        ("con.x", "%63on.x"),
    ],
)
def test_names_that_people_see(key, stem):
    assert file_stem(key) == stem
    assert key_of(stem) == key


@given(keys)
def test_every_name_is_safe(key):
    stem = file_stem(key)
    raw = os.fsencode(stem)
    assert 0 < len(raw) <= MAX_STEM
    assert not set(raw) & set(b'/\\:*?"<>|\0' + bytes(range(32)))
    assert stem[0] not in ".-@ "
    assert stem[-1] not in ". "
    text = raw.decode()
    assert (
        text.casefold() == text == unicodedata.normalize("NFKC", text) == unicodedata.normalize("NFD", text)
    )


@given(keys)
def test_names_are_reversible(key):
    stem = file_stem(key)
    assert key_of(stem) == (None if "~" in stem else key)
    assert scope_of(scope_folder(key)) == (key if key != "default" and "~" not in stem else None)


@given(keys, keys)
def test_different_keys_have_different_names(one, other):
    assert (file_stem(one) == file_stem(other)) == (one == other)


def test_hostile_names_stay_apart_where_case_is_ignored():
    names = {os.fsencode(file_stem(key)).lower() for key in HOSTILE}
    assert len(names) == len(HOSTILE)


@pytest.mark.parametrize("stem", ["UPPER", "a%2", "a%zz", "a%41", "a~b", "", "a+", "a b", "a.", "%2f", "%ff"])
def test_foreign_names_are_none_of_ours(stem):
    assert key_of(stem) in (None, "/")
