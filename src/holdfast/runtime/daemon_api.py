"""What the modules of a daemon answer by name: `state:entity:create`, `monitor:get_events` …

A table from names to calls, by the class of the module. Parameters have the names that daemons use
(`id`, `type`, `where`, `order_by`); what a call gives becomes plain data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import signature
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.store.names.items import Page

Answer = Callable[[Mapping[str, Any]], Any]


def _call(method: str, /, *places: str, **renamed: str) -> Callable[[Any], Answer]:
    """A call of a module's method: parameters by their names, `places` by their order.

    `renamed` has the method's name of a parameter for that which is sent. Calls of a queue are
    those of the one that `queue_name` says.
    """

    def make(module: Any) -> Answer:
        async def answer(data: Mapping[str, Any]) -> Any:
            given = dict(data)
            missing = [name for name in places if name not in given]
            if missing:
                raise InvalidInputError(f"{missing[0]} is missing")
            args = [given.pop(name) for name in places]
            called = module.queue(args.pop(0)) if places[:1] == ("queue_name",) else module
            function = getattr(called, method)
            named = {renamed.get(name, name): one for name, one in given.items()}
            try:
                signature(function).bind(*args, **named)
            except TypeError as error:
                known = ", ".join(signature(function).parameters)
                raise InvalidInputError(f"{error}; it takes {known}") from None
            found = function(*args, **named)
            found = await found if isinstance(found, Awaitable) else found
            return found.items if isinstance(found, Page) else found

        return answer

    return make


API: Mapping[str, Mapping[str, Callable[[Any], Answer]]] = {
    "Entities": {
        "state:entity:create": _call("create", "type"),
        "state:entity:bulk_create": _call("bulk_create", "entities"),
        "state:entity:update": _call("update", "id", "properties"),
        "state:entity:delete": _call("delete", "id"),
        "state:entity:get": _call("get", "id"),
        "state:entity:query": _call("query", order_by="order"),
        "state:relationship:create": _call("relate", "from", "type", "to"),
        "state:relationship:delete": _call("unrelate", "from", "type", "to"),
        "state:relationship:query": _call("relationships", **{"from": "from_id", "to": "to_id"}),
        "state:graph:traverse": _call("traverse", "from"),
        "state:aggregate:count": _call("count"),
    },
    "Queues": {
        "async_state:push": _call("push", "queue_name", "data", ttl_seconds="ttl"),
        "async_state:pop": _call("pop", "queue_name"),
        "async_state:get_queue": _call("items", "queue_name"),
        "async_state:delete": _call("delete", "queue_name"),
        "async_state:expire_queue": _call("expire", "queue_name", ttl_seconds="ttl"),
    },
    "Events": {
        "monitor:get_events": _call("query", event_patterns="patterns", client_id="client"),
        "monitor:query": _call("query", event_patterns="patterns", client_id="client"),
        "monitor:get_stats": _call("stats"),
        "monitor:clear_log": _call("clear"),
        "monitor:get_session_events": _call("session_events", "session_id"),
        "monitor:get_correlation_chain": _call("chain", "correlation_id"),
    },
    "Observations": {
        "observation:subscribe": _call("subscribe", "observer", "target"),
        "observation:unsubscribe": _call("unsubscribe", "id"),
        "observation:list": _call("list"),
        "observation:query": _call("query"),
        "observation:replay": _call("replay"),
        "observation:analyze": _call("analyze", analysis_type="what"),
    },
    "Requests": {
        "completion:submit": _call("submit", "session_id", "request"),
        "completion:active": _call("active"),
        "completion:waiting": _call("waiting", "session_id"),
        "completion:sessions": _call("sessions"),
    },
}
