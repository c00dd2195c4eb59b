"""Planning the layout of a queue for a load, from measured unit costs."""

from __future__ import annotations

from shardq.planning.load import Wanted
from shardq.planning.plan import Choice, Plan, Use, plan
from shardq.planning.unit_costs import UnitCosts, unit_costs

__all__ = ["Choice", "Plan", "UnitCosts", "Use", "Wanted", "plan", "unit_costs"]
