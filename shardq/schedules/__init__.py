"""Schedules: messages that are sent to a queue automatically, at a moment or again and again."""

from __future__ import annotations

from shardq.schedules.occurrences import send_due_occurrence
from shardq.schedules.schedule import CatchUp, Overlap, Schedule
from shardq.schedules.schedules import Schedules, forget

__all__ = ["CatchUp", "Overlap", "Schedule", "Schedules", "forget", "send_due_occurrence"]
