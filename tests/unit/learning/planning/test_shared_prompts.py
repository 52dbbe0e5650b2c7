"""Layouts of documents that begin alike."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learning.planning.shared_prompts import Segment, share

DOCUMENTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8)


def cut(documents: Sequence[Sequence[int]], own: Sequence[int], least: int) -> list[Segment]:
    return share([np.array(one, dtype=np.int64) for one in documents], own, least)


def test_a_system_text_is_one_segment_and_screens_of_a_group_another_one_behind_it() -> None:
    documents = [[1, 1, 1, 1, 5, 6, 7], [1, 1, 1, 1, 2, 2, 8], [1, 1, 1, 1, 2, 2, 9]]
    assert cut(documents, [6, 6, 6], 2) == [
        Segment(1, 0, 4, ()), Segment(1, 4, 6, (0,)), Segment(1, 6, 7, (0, 1)), Segment(2, 6, 7, (0, 1)),
        Segment(0, 4, 7, (0,)),
    ]  # fmt: skip


def test_nothing_is_shared_from_the_own_part_on_and_below_the_minimum() -> None:
    documents = [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert cut(documents, [2, 3], 2) == [Segment(0, 0, 2, ()), Segment(0, 2, 4, (0,)), Segment(1, 2, 4, (0,))]
    assert cut(documents, [2, 3], 3) == [Segment(0, 0, 4, ()), Segment(1, 0, 4, ())]
    assert cut([], [], 1) == [] and cut([[7]], [0], 1) == [Segment(0, 0, 1, ())]


def test_equal_openings_are_shared_to_their_ends_behind_a_text_that_others_share() -> None:
    documents = [[1, 1, 1, 1, 2, 7], [1, 1, 1, 1, 2, 8], [1, 1, 1, 1, 3, 9]]
    assert cut(documents, [5, 5, 5], 4) == [
        Segment(0, 0, 4, ()), Segment(0, 4, 5, (0,)), Segment(0, 5, 6, (0, 1)), Segment(1, 5, 6, (0, 1)),
        Segment(2, 4, 6, (0,)),
    ]  # fmt: skip


@given(DOCUMENTS, st.data(), st.integers(1, 4))
def test_each_document_is_the_chain_of_its_segments_and_no_segment_could_be_shared_further(
    documents: list[list[int]], data: st.DataObject, least: int
) -> None:
    own = [data.draw(st.integers(0, len(one))) for one in documents]
    segments = cut(documents, own, least)
    ends = {
        one.document: one for one in segments if one.end == len(documents[one.document]) and not _shared(one, segments)
    }
    assert sorted(ends) == list(range(len(documents)))
    for document, last in ends.items():
        chain = [*(segments[at] for at in last.before), last]
        assert [token for one in chain for token in documents[one.document][one.start : one.end]] == documents[document]
        assert all(one.end <= own[document] for one in chain[:-1])
    openings = Counter(tuple(one[:end]) for one, end in zip(documents, own, strict=True))
    for at, one in enumerate(segments):
        if _shared(one, segments):
            equal = openings[tuple(documents[one.document][: one.end])] > 1
            assert one.end - (0 if equal else one.start) >= least
        assert all(before < at for before in one.before)
        assert sum(segments[before].end - segments[before].start for before in one.before) == one.start
    once = sum(len(one) * (1 if len(one) >= least else times) for one, times in openings.items())
    rest = sum(len(one) - end for one, end in zip(documents, own, strict=True))
    assert sum(one.end - one.start for one in segments) <= once + rest
    followers = [segments[at].before for at in range(len(segments))]
    for one in range(len(segments)):
        for other in range(one):
            if followers[one] == followers[other]:  # siblings begin with fewer common tokens than are shared
                heads = [
                    documents[s.document][s.start : min(s.end, own[s.document])]
                    for s in (segments[one], segments[other])
                ]
                same = next((n for n, (a, b) in enumerate(zip(*heads, strict=False)) if a != b), min(map(len, heads)))
                assert same < least


def _shared(segment: Segment, segments: Sequence[Segment]) -> bool:
    at = segments.index(segment)
    return any(at in one.before for one in segments)


def test_a_segment_that_saves_less_than_its_copies_cost_is_not_shared() -> None:
    """Behind 4,000 common tokens, the keys and values of all of them are copied for a further shared segment."""
    for more, shared in ((32, False), (200, True)):
        keys = [
            np.array([0] * 4000 + [1 + pair] * more + [10 + 2 * pair + one] * 20) for pair in range(2) for one in (0, 1)
        ]
        segments = share(keys, [len(one) for one in keys])
        assert any(one.start == 4000 and one.end == 4000 + more for one in segments) == shared
