"""The options that say which queues a worker claims from, as they are typed."""

from __future__ import annotations

from stepwell.cli.queue_options import read_balance, read_queues


def test_a_queue_with_slots_keeps_the_spaces_of_its_name() -> None:
    assert read_queues([" mail=2", "mail =3"], None) == {" mail": 2, "mail ": 3}
    assert read_balance("mail=3, other=2") == {"mail": 3, "other": 2}
