"""Patterns mean what ECMA-262 says they mean, or are refused by name."""

import pytest

from .support import refused, verdict


@pytest.mark.parametrize(
    ("pattern", "found_in", "not_in"),
    [
        ("^a$", ["a"], ["a\n", "ab", "\na"]),
        (r"^\d$", ["7"], ["٣", "a"]),
        (r"^\w$", ["a", "_", "Z"], ["é", "-", "ſ"]),
        (r"^\W$", ["é", "-"], ["a"]),
        (r"^\s$", [" ", "\ufeff", "\u00a0", "\u2028", "\v"], ["\x85", "\u180e", "\x1c"]),
        (r"^\S$", ["\x85", "a"], ["\ufeff"]),
        ("^.$", ["a", "😀", "\x85"], ["\n", "\r", "\u2028", ""]),
        (r"\bé", ["aé"], ["é"]),
        (r"\Ba", ["ba"], ["a"]),
        (r"^\B$", [""], ["a"]),
        ("^[^]$", ["a", "\n"], ["", "ab"]),
        ("[]", [], ["", "a", "]"]),
        (r"^[\d\-x]+$", ["1-x"], ["a"]),
        (r"^[\w-.]+$", ["a-.b"], ["a,b"]),
        (r"^[^\W\d]+$", ["ab_"], ["a1", "é"]),
        (r"^[\b]$", ["\b"], ["b"]),
        ("^[a&&b]+$", ["a&b"], ["c"]),
        ("^[[a]+$", ["[a"], ["]"]),
        (r"^\x41\u0042\u{43}\cJ\0$", ["ABC\n\0"], ["ABC"]),
        (r"^\u{1F600}$", ["😀"], ["a"]),
        (r"^\uD83D\uDE00$", ["😀"], ["a"]),
        ("^[😀-😂]$", ["😁"], ["😃"]),
        (r"^\p{L}+$", ["aéΩ"], ["a1"]),
        (r"^\p{Letter}\P{Lu}$", ["Éa", "aa"], ["aA"]),
        (r"^[\p{Nd}x]$", ["٣", "x"], ["y"]),
        (r"^\p{gc=Lu}\p{General_Category=Ll}\p{LC}$", ["Aaǅ"], ["aAa"]),
        ("^{}$", ["{}"], [""]),
        ("^a{2}b{1,}c{0,1}$", ["aab", "aabbc"], ["ab", "aabcc"]),
        ("^a{,2}$", ["a{,2}"], ["aa"]),
        ("^(?<year>[0-9]{4})(?:-(?!13)[0-9]{2})?$", ["2026", "2026-12"], ["2026-13"]),
        ("(?<=a)b(?<!c)", ["ab"], ["b"]),
        (r"^a\/b\-c\@d\.e$", ["a/b-c@d.e"], ["a/b-c@dxe"]),
        ("^(a|b|)$", ["a", "b", ""], ["c"]),
        ("^a+?b*?$", ["aab"], ["b"]),
        ("a#b c", ["xa#b cx"], ["ab c"]),
    ],
)
def test_a_pattern_is_found_where_ecma_262_finds_it(pattern: str, found_in: list[str], not_in: list[str]) -> None:
    for string in found_in:
        assert verdict({"pattern": pattern}, string) is None, string
        assert verdict({"patternProperties": {pattern: False}}, {string: 1}) is not None, string
    for string in not_in:
        assert verdict({"pattern": pattern}, string) == ("", "pattern"), string
        assert verdict({"patternProperties": {pattern: False}}, {string: 1}) is None, string


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a)\1", r"(?<n>a)\k<n>", r"\p{Script=Greek}", r"\p{Emoji}", r"\p{Lx}", r"\p", r"\pL"),
        *(
            r"\A",
            r"\Z",
            r"\z",
            r"\a",
            r"\e",
            r"\h",
            r"\R",
            r"\07",
            r"\c1",
            r"\x4",
            r"\u12",
            r"\u{110000}",
            r"\uD83D\u0041",
        ),
        *("(?P<n>a)", "(?i)a", "(?i:a)", "(?>a)", "(?#a)", "(?", "(?<1>a)", "(", ")", "a)", "[a", "[z-a]", "a\\"),
        *(
            "*",
            "+a",
            "a**",
            "a*+",
            "a++",
            "a?+",
            "a{1}{2}",
            "a{2,1}",
            "^*",
            r"\b+",
            "(?=a)*",
            "(|*)",
            "a{9999999999,}*",
        ),
        *("(?<=a+)b", "(" * 101 + ")" * 101, "a" * 10_001),
    ],
)
def test_what_is_no_such_pattern_or_is_not_supported_is_refused_by_name(pattern: str) -> None:
    assert refused({"properties": {"a": {"pattern": pattern}}}) == ("/properties/a/pattern", "pattern")
    assert refused({"patternProperties": {pattern: True}}) == ("/patternProperties", "patternProperties")


def test_a_pattern_is_no_more_than_a_constraint_on_strings() -> None:
    assert verdict({"pattern": "^a"}, 5) is None
    assert refused({"pattern": 5}) == ("/pattern", "pattern")
