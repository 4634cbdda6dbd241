"""Whose turn it is among queues that share slots, by a model of claims."""

from __future__ import annotations

from collections import Counter

import pytest

from stepwell.worker.claiming.balance import Balance, BalanceOption
from stepwell.worker.claiming.queue_rotation import MOST_ASKED, QueueRotation


class Queues:
    """Queues with so many jobs, claimed from one slot at a time."""

    def __init__(self, balance: BalanceOption, **waiting: int) -> None:
        self.waiting = waiting
        self.turns = QueueRotation(list(waiting), Balance(balance))
        self.turns.add(waiting)

    def put(self, queue: str, count: int) -> None:
        self.waiting[queue] += count
        self.turns.add([queue])

    def claim(self, times: int) -> list[str]:
        claimed: list[str] = []
        for _ in range(times):
            asked = self.turns.next()
            queue = next((queue for queue in asked if self.waiting[queue]), None)
            if queue is None:
                end(self.turns, asked)
                break
            self.waiting[queue] -= 1
            self.turns.remove(self.turns.gave(asked, {queue: 1}, all_they_had=False))
            claimed.append(queue)
        return claimed


def end(turns: QueueRotation, asked: list[str]) -> None:
    """A claim finds nothing more in any of these queues."""
    turns.remove(turns.gave(asked, {}, all_they_had=True))


def test_queues_take_turns() -> None:
    assert Queues("round_robin", a=9, b=9, c=9).claim(6) == ["a", "b", "c", "a", "b", "c"]


def test_weights_are_kept_with_one_slot_at_a_time() -> None:
    queues = Queues({"a": 3, "b": 1}, a=1000, b=1000, c=1000)
    claimed = queues.claim(500)
    assert Counter(claimed) == {"a": 300, "b": 100, "c": 100}
    assert Counter(claimed[250:300])["a"] == pytest.approx(30, abs=2)


def test_what_one_leaves_goes_to_the_others() -> None:
    assert Counter(Queues({"a": 3}, a=2, b=10).claim(20)) == {"a": 2, "b": 10}


@pytest.mark.parametrize("balance", ["round_robin", {"late": 1, "deep": 1}])
def test_a_queue_cannot_claim_back_the_time_when_it_had_nothing(balance: BalanceOption) -> None:
    queues = Queues(balance, deep=5000, late=0)
    assert Counter(queues.claim(1000)) == {"deep": 1000}
    queues.put("late", 1000)
    assert queues.claim(2) == ["deep", "late"]
    assert Counter(queues.claim(98)) == {"deep": 49, "late": 49}


def test_one_that_comes_back_does_not_wait_for_what_it_took_alone() -> None:
    queues = Queues("round_robin", a=100, b=0)
    queues.claim(100)
    queues.put("b", 50)
    queues.put("a", 50)
    assert Counter(queues.claim(20)) == {"a": 10, "b": 10}


def test_one_wide_claim_does_not_count_against_the_claims_of_one_after_it() -> None:
    turns = QueueRotation(["a", "b"], Balance("round_robin"))
    turns.add(["a"])
    turns.gave(["a"], {"a": 500}, all_they_had=False)
    turns.add(["b"])
    given: list[str] = []
    for _ in range(10):
        asked = turns.next()
        turns.gave(asked, {asked[0]: 1}, all_they_had=False)
        given.append(asked[0])
    assert Counter(given) == {"a": 5, "b": 5}


def test_strictly_the_first_that_has_something_gives() -> None:
    queues = Queues("strict", z=3, a=3)
    assert queues.claim(4) == ["z", "z", "z", "a"]
    queues.put("z", 1)
    assert queues.claim(5) == ["z", "a", "a"]


def test_strictly_the_queues_of_a_pattern_go_by_name_in_its_place() -> None:
    turns = QueueRotation(["*", "m.*", "m.first", "last"], Balance("strict"))
    turns.add(["last", "m.b", "m.first", "x", "m.a", "b"])
    assert turns.next() == ["b", "x", "m.a", "m.b", "m.first", "last"]
    assert turns.shares(turns.next()) == [1, 0, 0, 0, 0, 0]


def test_a_weight_goes_to_each_queue_that_fits_its_pattern_best() -> None:
    turns = QueueRotation(["*"], Balance({"*": 2, "mail.*": 3, "mail.eu": 5}))
    asked = ["mail.eu", "mail.us", "other"]
    assert turns.shares(asked) == [5, 3, 2]
    assert turns.shares(["other"]) is None
    assert QueueRotation(["*"], Balance("round_robin")).shares(asked) is None


@pytest.mark.parametrize("balance", ["round_robin", "strict"])
def test_with_thousands_of_queues_a_claim_asks_some_and_the_next_others(balance: BalanceOption) -> None:
    names = [f"q{number:04}" for number in range(1000)]
    turns = QueueRotation(["*"], Balance(balance))
    turns.add(names)
    met: list[str] = []
    while asked := turns.next():
        assert len(asked) <= MOST_ASKED
        met += asked
        end(turns, asked)
    assert met == names
