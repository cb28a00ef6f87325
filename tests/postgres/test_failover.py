"""A primary killed under load: nothing acknowledged is lost to a synchronous standby, no token issued twice to any."""

from __future__ import annotations

from tests.postgres.failover import fail_over


def test_failover_to_a_synchronous_standby_loses_nothing_acknowledged() -> None:
    found = fail_over(synchronous=True, workers=4, before=40, after=40)
    assert found.lost == 0
    assert found.refused == {}


def test_failover_to_an_asynchronous_standby_that_is_behind_issues_no_token_twice() -> None:
    found = fail_over(synchronous=False, workers=4, before=40, after=40)
    assert found.lost > 0, "the standby was behind, so the test is of something"
    assert found.completed >= 120
