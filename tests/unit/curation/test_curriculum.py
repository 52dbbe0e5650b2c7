from hypothesis import given
from hypothesis import strategies as st

from curation.curriculum import apportion, mix, seeds
from tests.fixtures.sentences import Sentences


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0.01, 1.0), min_size=1, max_size=8), st.integers(0, 500)
)
def test_plays_add_up_to_the_budget_and_stay_within_one_of_their_share(weights: dict[str, float], total: int):
    counts = apportion(weights, total)
    assert sum(counts.values()) == total
    mass = sum(weights.values())
    assert all(abs(counts[name] - total * weight / mass) < 1.0 for name, weight in weights.items())


def test_weights_that_add_up_to_nothing_are_refused(sentence: Sentences):
    with sentence.raises(ValueError):
        apportion({"a": 0.0}, 10)


def test_a_hopeless_task_is_left_to_the_explorer_for_the_most_part():
    assert mix(40, "learnable", 0.5, 0.25, 0.25, lead=1.5).policy == 20
    hopeless = mix(40, "hopeless", 0.5, 0.25, 0.25, lead=1.5)
    assert (hopeless.policy, hopeless.relay, hopeless.explorer) == (5, 2, 33)
    assert mix(40, "unseen", 0.5, 0.25, 1.0, lead=0.0) == mix(40, "learnable", 0.5, 0.25, 0.25, lead=1.0)


def test_a_policy_that_succeeds_less_than_the_explorer_gets_less_of_its_share():
    def policy(pool: str, lead: float) -> int:
        return mix(40, pool, 0.5, 0.25, 0.2, lead).policy

    assert [policy("learnable", lead) for lead in (0.0, 0.2, 0.5, 1.0, 3.0)] == [4, 4, 10, 20, 20]
    assert policy("uniform", 0.0) == 20


def test_training_seeds_are_distinct_repeatable_and_below_the_held_out_ones():
    one = seeds(7, 3, "miniwob/click-test", "explorer", 200)
    assert one == seeds(7, 3, "miniwob/click-test", "explorer", 200)
    assert len(set(one)) == 200
    assert all(0 <= seed < 1_000_000 for seed in one)
    assert one != seeds(7, 4, "miniwob/click-test", "explorer", 200)
