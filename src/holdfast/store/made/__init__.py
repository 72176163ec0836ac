"""What the async view, state and store inherit: their methods made of the blocking ones.

What leaves the event loop as a whole is made (`store.names.face`). What is written by hand in
`store.state_async` and `store.store_async` goes before it: what commits through the pump, reads in
the loop
without a detour, or is no plain call: changes, streams, watches. Types are in the stub beside this
file, which `scripts/stubs.py` writes.
"""

from __future__ import annotations

from holdfast.store.names.face import made
from holdfast.store.state import State, View
from holdfast.store.store import Store

MadeView = made(View)
MadeState = made(State)
MadeStore = made(Store)
