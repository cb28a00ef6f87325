"""The same durable cycle (add, take, finish, each committed) by other queues on PostgreSQL.

Run by benchmarks/postgres.py in an environment of its own, which has PgQueuer and Procrastinate:
    python benchmarks/postgres_others.py pgqueuer postgresql://… WORKERS
Each line of the input is a number of cycles, which the workers share, each with a connection of its own; each line of
the output is the rate they were done at. So the queues can be measured in turns.

Each queue is asked through its own lowest level, without its worker's loop, notices or polling in between, on uvloop,
which PgQueuer's own command uses: that is the quickest either does one task at a time, each step committed.
"""

import asyncio
import sys
import time
import uuid
from datetime import timedelta

import uvloop


async def pgqueuer(url, workers):
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import EntrypointExecutionParameter, Queries

    wanted = {"work": EntrypointExecutionParameter(0)}

    async def worker(first):
        queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
        if first:
            await queries.install()
        manager = uuid.uuid4()

        async def cycle():
            await queries.enqueue("work", b"x")
            # Another worker may have taken it, and left its own to this one a moment later.
            while not (found := await queries.dequeue(1, wanted, manager, None, timedelta(seconds=900))):
                pass
            await queries.log_jobs([(found[0], "successful", None)])

        return cycle

    await measured([await worker(number == 0) for number in range(workers)])


async def procrastinate(url, workers):
    from procrastinate import App, PsycopgConnector, jobs

    app = App(connector=PsycopgConnector(conninfo=url, min_size=workers, max_size=workers))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()

        async def worker():
            name = await app.job_manager.register_worker()

            async def cycle():
                job = jobs.Job(queue="default", lock=None, queueing_lock=None, task_name="work")
                await app.job_manager.defer_job_async(job)
                while (found := await app.job_manager.fetch_job(None, name)) is None:
                    pass
                await app.job_manager.finish_job(found, jobs.Status.SUCCEEDED, False)

            return cycle

        await measured([await worker() for _ in range(workers)])


async def measured(cycles):
    """Do as many cycles as each line asks for."""
    for line in sys.stdin:
        each = max(1, int(line) // len(cycles))

        async def work(cycle, each=each):
            for _ in range(each):
                await cycle()

        begun = time.perf_counter()
        await asyncio.gather(*(work(cycle) for cycle in cycles))
        print(each * len(cycles) / (time.perf_counter() - begun), flush=True)


if __name__ == "__main__":
    name, url, workers = sys.argv[1:]
    uvloop.run({"pgqueuer": pgqueuer, "procrastinate": procrastinate}[name](url, int(workers)))
