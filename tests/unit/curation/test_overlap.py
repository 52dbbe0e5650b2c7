"""Pages that share a phrase, markup or a look with a suite are found; others are not."""

from curation.overlap import MIN_BITS, Evidence, nearest, overlap, phrases_of

ROW = [f"td class=c{at}" for at in range(8)]


def evidence(instruction: str, elements: list[str], look: int, name: str = "one") -> Evidence:
    found = Evidence()
    found.add(name, instruction, elements, look)
    return found


def test_five_words_in_a_row_are_a_phrase_whatever_their_case_and_punctuation() -> None:
    assert phrases_of("Press, then “Save” it now!") == {("press", "then", "save", "it", "now")}
    assert phrases_of("Too few words here") == set()


def test_a_shared_phrase_is_found() -> None:
    pages, suite = (
        evidence("Open the box and look inside", [], 0),
        evidence("Now open the box and look", [], 2**511 - 1),
    )
    found = overlap(pages, suite)
    assert found.phrases == ("open the box and look",) and not found.apart


def test_eight_equal_elements_in_a_row_are_shared_markup_and_seven_are_not() -> None:
    suite = evidence("", ["div id=a", *ROW], 2**511 - 1)
    assert len(overlap(evidence("", [*ROW, "p"], 0), suite).markup) == 1
    assert overlap(evidence("", [*ROW[:7], "p"], 0), suite).apart


def test_the_nearest_screens_are_named_with_their_distance() -> None:
    pages, suite = evidence("", [], 0b111, "page a"), evidence("", [], 0b1, "suite/b")
    pages.add("page c", "", [], 2**512 - 1)
    found = overlap(pages, suite)
    assert (found.bits, found.nearest, found.apart) == (2, ("page a", "suite/b"), False)
    assert overlap(evidence("", [], (1 << MIN_BITS) - 1), evidence("", [], 0)).apart


def test_the_nearest_hashes_are_the_same_as_by_comparing_each_pair() -> None:
    some, others = [3**at % 2**512 for at in range(300, 340)], [5**at % 2**512 for at in range(200, 230)]
    bits, left, right = nearest(some, others)
    assert bits == min((a ^ b).bit_count() for a in some for b in others) == (some[left] ^ others[right]).bit_count()
