"""Stores whose leases are renewed by hand, so that it is the test that says who is heard."""

from __future__ import annotations

from typing import Any

from store_kit import Hands

from holdfast.store.lease import Leases


def by_hand(store: Any) -> Any:
    """The store, without renewals in the background; either face."""
    leases = store._core.leases
    leases.renew_due = lambda: 3600.0 if leases._live() else None
    return store


def beat(*stores: Any) -> None:
    """Renew what is due."""
    for store in stores:
        Leases.renew_due(store._core.leases)


def pass_a_lease(hands: Hands, *stores: Any) -> None:
    """So much time that who is silent is found; these stores live."""
    for _ in range(2):
        hands.move(20)
        beat(*stores)
