"""Random programs for `interpret`, as plain data."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Ops = list[Any]

_VALUES = st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.just("text"), st.just([1, {"a": None}]))
_PAUSES = st.sampled_from(["1ms", "90s"])

_simple = st.one_of(
    st.tuples(st.just("step"), _VALUES),
    st.tuples(st.just("plain"), _VALUES),
    st.tuples(st.just("late"), st.integers(1, 2), _PAUSES),
    st.tuples(st.just("undoable")),
    st.tuples(st.just("pay"), _VALUES),
    st.tuples(st.just("sleep"), st.sampled_from([0, 0.001, 5, 86400])),
    st.tuples(st.just("wait"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("receive"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("time out")),
    st.tuples(st.just("own")),
    st.tuples(st.just("map"), st.lists(st.integers(0, 3), unique=True, max_size=3), st.sampled_from([None, 1, 2])),
    st.tuples(st.just("chance")),
    st.tuples(st.just("now")),
    st.tuples(st.just("patched")),
    st.tuples(st.just("stumble")),
)
_failing = st.one_of(
    st.tuples(st.just("wrong"), st.integers(0, 2), _PAUSES),
    st.tuples(st.just("overdraw")),
)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    ops = st.lists(inner, max_size=3)
    several = st.lists(ops, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("try"), st.lists(st.one_of(inner, _failing), min_size=1, max_size=3)),
        st.tuples(st.just("child"), ops),
        st.tuples(st.just("children"), several),
        st.tuples(st.just("gather"), several),
        st.tuples(st.just("first"), ops),
        st.tuples(st.just("first child"), ops),
        st.tuples(st.just("if"), st.integers(0, 1), ops, ops),
    )


_op = st.recursive(st.one_of(_simple, _simple, _simple, _failing), _deeper, max_leaves=6)

programs: st.SearchStrategy[Ops] = st.lists(_op, min_size=1, max_size=5)
