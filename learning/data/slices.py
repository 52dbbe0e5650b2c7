"""Cuts trajectories into slices: the replies between two folds, which a training draws and encodes together.

With `policy.context=fold`, the prompt of a reply begins with the prompt and the reply before it until the next fold. So
one sequence holds all replies of a slice. Each reply is a target once, after the tokens that it was sampled from.
A slice comes as often as one of its replies would alone, so a step's weight does not depend on the trajectory's length.

The documents of a step are still its replies. The engine lays a reply behind an earlier one only if its own tokens
begin with that reply's tokens (`chained`); any other reply gets a sequence of its own.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from learning.data.files import Rollout
from learning.data.sample import at_once
from schemas.context import ContextRule


def slices_of(keys: Iterable[Hashable | None]) -> list[list[int]]:
    """Groups replies into slices.

    Args:
        keys: key of each reply, equal within a slice, such as trajectory, folded screens and weight; None for a
            document that is a slice of its own.

    Returns:
        The replies of each slice in order; slices are in the order of their first reply.
    """
    found = list[list[int]]()
    known: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        if key is not None and key in known:
            known[key].append(number)
            continue
        found.append([number])
        if key is not None:
            known[key] = found[-1]
    return found


def slices(documents: Sequence[Any], rule: ContextRule) -> list[list[int]]:
    """Cuts rollouts or a file of samples into slices; with a window that slides, each document is its own slice.

    The samples of a slice have the same positions in the training.
    """
    if not rule.folds:
        return [[number] for number in range(len(documents))]
    if documents and isinstance(documents[0], Rollout):
        return slices_of((one.trajectory_id, rule.folded(len(one.past_replies) + 1), one.weight) for one in documents)
    return slices_of(at_once(documents))


def chained(documents: Sequence[int], follows: Mapping[int, int]) -> list[list[int]]:
    """Puts the documents of a step into sequences.

    Args:
        documents: numbers of the documents, in the step's order; a document may occur several times.
        follows: for each document, the last one before it whose tokens begin its own; missing if there is none.

    Returns:
        The places of each sequence's documents among `documents`, the shortest document first.
    """
    found = list[list[int]]()
    ends: dict[int, list[int]] = {}
    for place, document in enumerate(documents):
        before = follows.get(document)
        while before is not None and before not in ends:
            before = follows.get(before)
        sequence = list[int]() if before is None else ends.pop(before)
        if not sequence:
            found.append(sequence)
        sequence.append(place)
        ends[document] = sequence
    return found
