"""Tests that incrementally updated sums equal those over all members."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.machinery.sums import Key, MetricSums, Slots

KEYS = [("a", ("x",)), ("a", ("y",)), ("b", ())]
WORDS = st.tuples(st.integers(0, 3), st.dictionaries(st.sampled_from(KEYS), st.integers(0, 3)))


@given(st.lists(WORDS, max_size=30))
def test_sums_equal_those_of_the_last_reports(words: list[tuple[int, dict[Key, int]]]) -> None:
    sums: MetricSums[int] = MetricSums()
    for owner, numbers in words:
        sums.replace(owner, numbers)
    wanted: Counter[Key] = Counter()
    for numbers in dict(words).values():
        wanted.update(numbers)
    found = {(name, labels): number for name in ("a", "b") for labels, number in sums.totals(name).items()}
    assert found == {key: wanted[key] for numbers in dict(words).values() for key in numbers}, "a number may be 0"
    assert len(sums._reported) == sum(bool(numbers) for numbers in dict(words).values())


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40), st.integers(0, 3))
def test_slots_are_limited_and_given_to_the_longest_waiting_member(steps: list[tuple[int, bool]], most: int) -> None:
    slots: Slots[int] = Slots(most)
    held, waiting = set[int](), list[int]()
    for owner, comes in steps:
        if comes:
            if owner not in held and owner not in waiting:
                held.add(owner) if len(held) < most else waiting.append(owner)
            assert slots.has_slot(owner) == (owner in held)
        else:
            follows = slots.remove_owner(owner)
            if owner in held:
                held.remove(owner)
                assert follows == (waiting[0] if waiting else None)
                held |= set(waiting[:1])
                waiting = waiting[1:]
            else:
                assert follows is None
                waiting = [each for each in waiting if each != owner]
        assert slots.queued_count == len(waiting) and len(held) <= most


OWNERS = st.tuples(st.sampled_from("abc"), st.integers(0, 6))


@given(st.lists(st.tuples(OWNERS, st.booleans()), max_size=60), st.integers(0, 5))
def test_slots_are_shared_evenly_between_groups(steps: list[tuple[tuple[str, int], bool]], most: int) -> None:
    slots: Slots[tuple[str, int]] = Slots(most, lambda owner: owner[0])
    there, held = dict[tuple[str, int], None](), set[tuple[str, int]]()
    for owner, comes in steps:
        if comes:
            there[owner] = None
            held = held | {owner} if slots.has_slot(owner) else held - {owner}
            held -= {slots.pop_displaced()}  # type: ignore[arg-type]
        else:
            there.pop(owner, None)
            held = (held - {owner}) | {each for each in [slots.remove_owner(owner)] if each is not None}
        count = Counter(group for group, _ in held)
        assert len(held) == min(most, len(there)) and slots.queued_count == len(there) - len(held) and held <= there.keys()
        for group, _ in there.keys() - held:
            assert max(count.values(), default=0) <= count[group] + 1, "a waiting member would make it less even"
        assert slots.pop_displaced() is None
