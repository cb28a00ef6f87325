"""A shift whose last job ends in the very moment in which it begins to wait for it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tenure.surfaces.sdk.async_client import AsyncClient
from tenure.surfaces.sdk.shift import Shift, Terms


async def just_ended(shift: Shift) -> None:
    """A job that is over, and whose end the shift hears of in the loop's next round."""

    async def work() -> bool:
        return True

    job = asyncio.ensure_future(work())
    shift._jobs.add(job)
    job.add_done_callback(shift._over)
    await asyncio.sleep(0)
    assert job.done()
    assert shift._jobs


@pytest.mark.parametrize("wait", [Shift._drain, Shift._wait_for_a_job])
def test_job_that_ends_before_the_wait_for_it_begins_is_no_fault(wait: Any) -> None:
    async def story() -> None:
        shift = Shift(Terms("test.1"), cast("AsyncClient", None), {})
        await just_ended(shift)
        await wait(shift)
        assert not shift._jobs
        assert shift._finished == 1

    asyncio.run(asyncio.wait_for(story(), 120))
