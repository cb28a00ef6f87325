"""The same durable cycle (add, take, finish, each committed) by other queues on PostgreSQL, one worker, one at a time.

Run by benchmarks/postgres.py in an environment of its own, which has PgQueuer and Procrastinate:
    python benchmarks/postgres_others.py pgqueuer postgresql://… 500
"""

import asyncio
import json
import sys
import time
import uuid
from datetime import timedelta


async def pgqueuer(url, cycles):
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import EntrypointExecutionParameter, Queries

    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    wanted = {"work": EntrypointExecutionParameter(0)}
    manager = uuid.uuid4()

    async def cycle():
        await queries.enqueue("work", b"x")
        found = await queries.dequeue(1, wanted, manager, None, timedelta(seconds=900))
        await queries.log_jobs([(found[0], "successful", None)])

    return await timed(cycle, cycles)


async def procrastinate(url, cycles):
    from procrastinate import App, PsycopgConnector, jobs

    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=1))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = await app.job_manager.register_worker()

        async def cycle():
            job = jobs.Job(queue="default", lock=None, queueing_lock=None, task_name="work")
            await app.job_manager.defer_job_async(job)
            found = await app.job_manager.fetch_job(None, worker)
            await app.job_manager.finish_job(found, jobs.Status.SUCCEEDED, False)

        return await timed(cycle, cycles)


async def timed(cycle, cycles):
    for _ in range(20):
        await cycle()
    begun = time.perf_counter()
    for _ in range(cycles):
        await cycle()
    return cycles / (time.perf_counter() - begun)


if __name__ == "__main__":
    name, url, cycles = sys.argv[1:]
    rate = asyncio.run({"pgqueuer": pgqueuer, "procrastinate": procrastinate}[name](url, int(cycles)))
    print(json.dumps({"name": name, "cycles_per_s": rate}))
