"""What a verb is: checked inputs, one transaction, an answer or a refusal.

    @verb(task_id=inputs.ident, agent_id=inputs.ident)
    def claim(tx: Transaction, *, task_id: str, agent_id: str) -> Grant | Refused: ...

    claim(store, task_id="F001", agent_id="A1")

The body reads, decides and writes inside the transaction it is given. Every argument has a check, made before the
transaction is opened. A refusal is returned, and what the body wrote before refusing commits with it; an exception
rolls back. A fault of the store comes back as a refusal too, so that a surface has one thing to render.

A server's runner, which puts many verbs into one commit, uses `check` and `body` directly.
"""

from __future__ import annotations

from tenure.core.errors import Refused
from tenure.core.inputs import bad
from tenure.store.store import StoreFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

    from tenure.core.inputs import Check
    from tenure.store.store import Store, Transaction

    P = ParamSpec("P")
    R = TypeVar("R")
else:
    P = R = None

    class Generic:
        """Stands in for typing's, which costs a hook 7 ms to import."""

        def __class_getitem__(cls, item):
            return cls


# Every verb by name, for the surfaces and for the tests that walk them all.
VERBS: dict[str, Verb[..., Any]] = {}


class Verb(Generic[P, R]):
    """One verb. Call it with a store and keyword arguments."""

    def __init__(self, body: Callable[Concatenate[Transaction, P], R], inputs: dict[str, Check], writes: bool) -> None:
        self.name = body.__name__
        self.body = body
        self.inputs = inputs
        self.writes = writes
        # What a caller must give: the body's keyword arguments without a default. A verb that passes its arguments on
        # in a bundle (**claimant) names the bundle's own after its declaration.
        code, defaults = body.__code__, body.__kwdefaults__ or {}
        names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        self.required = {name for name in names if name not in defaults}
        self.__doc__ = body.__doc__

    def __call__(self, store: Store, *args: P.args, **kwargs: P.kwargs) -> R | Refused:
        """Check, then run in one transaction of the store."""
        checked = self.check(kwargs)
        if isinstance(checked, Refused):
            return checked
        perform = store.run if self.writes else store.look
        try:
            return perform(lambda tx: self.body(tx, *args, **checked))
        except StoreFault as fault:
            return fault.refusal

    def check(self, arguments: dict[str, Any]) -> dict[str, Any] | Refused:
        """The arguments as the body takes them, or the refusal of the first bad one."""
        checked, inputs = {}, self.inputs
        for name, value in arguments.items():
            check = inputs.get(name)
            if check is None:
                return bad(name, f"is not an argument of {self.name}")
            good = check(name, value)
            if isinstance(good, Refused):
                return good
            checked[name] = good
        if self.required <= checked.keys():
            return checked
        return bad(min(self.required - checked.keys()), "is missing")


def verb(**inputs: Check) -> Callable[[Callable[Concatenate[Transaction, P], R]], Verb[P, R]]:
    """Declare a verb that writes."""
    return _declare(inputs, writes=True)


def query(**inputs: Check) -> Callable[[Callable[Concatenate[Transaction, P], R]], Verb[P, R]]:
    """Declare a verb that only reads. What it says is advice: only a write transaction decides."""
    return _declare(inputs, writes=False)


def _declare(
    inputs: dict[str, Check], writes: bool
) -> Callable[[Callable[Concatenate[Transaction, P], R]], Verb[P, R]]:
    def declare(body: Callable[Concatenate[Transaction, P], R]) -> Verb[P, R]:
        made = Verb(body, inputs, writes)
        VERBS[made.name] = made
        return made

    return declare
