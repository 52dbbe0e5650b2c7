"""Check a reward independently of its maker: every requested change counts, and nothing else may change.

A maker names the near misses that it thinks of, and a reward maker reads the words alone. Both can forget the same part
of the request, or the same side effect. The initial and the golden state define the change. They give further near
misses that need no imagination, and checks that hold the other fields to their values.
"""

from collections.abc import Collection, Iterable, Mapping

from schemas.world import FieldCheck, State, World, canonical


def guards(checks: Collection[FieldCheck], initial: State, golden: State, world: World) -> tuple[FieldCheck, ...]:
    """Return checks that all other fields stay unchanged.

    Fields that the environment leaves free, or that the reward reads anyway, need none.
    """
    return tuple(one for one in world.guards(checks, initial) if not _changes(one.field, initial, golden))


def left_out(initial: State, golden: State, world: World) -> list[State]:
    """Return the golden state without one of its changes: one for each field, and one for each entry of counts."""
    changed = [one for one in world.fields if _changes(one.name, initial, golden)]
    found = [{**golden, one.name: initial[one.name]} for one in changed]
    for one in changed:
        if one.kind == "counts":
            found += [{**golden, one.name: counts} for counts in _but_one(initial[one.name], golden[one.name])]
    return _distinct(found, golden)


def side_effects(golden: State, world: World) -> list[State]:
    """Return the golden state with one further change: one for each field that the environment does not leave free.

    Of counts there are three: one more, one less, and one gone.
    """
    found: list[State] = []
    for one in world.fields:
        value = golden[one.name]
        match one.kind if one.guarded else "page":
            case "text":
                found.append({**golden, one.name: "something else" if value != "something else" else "other"})
            case "flag":
                found.append({**golden, one.name: not value})
            case "counts":
                found += [{**golden, one.name: counts} for counts in _with_others(value, _goods(world))]
            case _:
                continue
    return _distinct(found, golden)


def _changes(name: str, initial: State, golden: State) -> bool:
    """Whether a check distinguishes the two states."""
    return not FieldCheck(field=name, value=golden[name]).holds(initial)


def _but_one(before: Mapping[str, int], after: Mapping[str, int]) -> list[dict[str, int]]:
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return [{name: count for name, count in {**after, key: before.get(key, 0)}.items() if count} for key in changed]


def _with_others(counts: Mapping[str, int], goods: Iterable[str]) -> list[dict[str, int]]:
    """Return counts with another entry, and for each entry with one more of it and without it."""
    more = [{**counts, key: 1} for key in goods if key not in counts][:1]
    for key, count in counts.items():
        more += [{**counts, key: count + 1}, {name: left for name, left in counts.items() if name != key}]
    return more


def _goods(world: World) -> list[str]:
    return [one.key for one in world.site.of_kind(world.site.goods)] if world.site else []


def _distinct(states: Iterable[State], golden: State) -> list[State]:
    return list({canonical(one): one for one in states if one != golden}.values())
