"""Planning the layout of a queue for a load, from measured unit costs."""

from __future__ import annotations

from shardq.planning.load import UnitCosts, Wanted, unit_costs
from shardq.planning.plan import Choice, Plan, Use, plan

__all__ = ["Choice", "Plan", "UnitCosts", "Use", "Wanted", "plan", "unit_costs"]
