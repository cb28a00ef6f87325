"""Tenure: a work queue for fleets of agents, where a task is held on a lease and recovered when its holder goes quiet.

Importing the package imports nothing else: a command-line process pays only for the parts it uses. The worker SDK is
loaded when one of its names is first asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.sdk.async_client import AsyncClient
    from tenure.surfaces.sdk.client import Client
    from tenure.surfaces.sdk.errors import Cancelled, Escalate, Failed, Refusal, TenureError, Unavailable
    from tenure.surfaces.sdk.tasks import Artifact, AsyncContext, Context, Outcome, Task
    from tenure.surfaces.sdk.worker import AsyncWorker, Worker

__all__ = [
    "Artifact",
    "AsyncClient",
    "AsyncContext",
    "AsyncWorker",
    "Cancelled",
    "Client",
    "Context",
    "Escalate",
    "Failed",
    "Outcome",
    "Refusal",
    "Task",
    "TenureError",
    "Unavailable",
    "Worker",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "async_client",
    "Client": "client",
    **dict.fromkeys(("Cancelled", "Escalate", "Failed", "Refusal", "TenureError", "Unavailable"), "errors"),
    **dict.fromkeys(("Artifact", "AsyncContext", "Context", "Outcome", "Task"), "tasks"),
    **dict.fromkeys(("AsyncWorker", "Worker"), "worker"),
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tenure' has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module(f"tenure.surfaces.sdk.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
