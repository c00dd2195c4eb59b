"""The conformance suite: the duties of every store, as tests.

A store's author writes a :class:`~shardq.testing.StoreHarness` and one class::

    @pytest.fixture(scope="module")
    def harness():
        return MyHarness()

    class TestMyStore(StoreConformance):
        pass

Each contract can be used alone while a store is being written. Needs pytest and Hypothesis.
"""

from __future__ import annotations

import sys

import pytest

_MODULES = (
    "ack",
    "across_shards",
    "append",
    "applications",
    "bench",
    "claim",
    "clients",
    "concurrency",
    "consumers",
    "contract",
    "dedupe",
    "directory",
    "dropping",
    "expiry",
    "extend",
    "fencing",
    "finishing",
    "forward",
    "group_leases",
    "group_stays",
    "groups",
    "hints",
    "history",
    "incarnations",
    "joined_clients",
    "large_bodies",
    "leftovers",
    "limits",
    "looking",
    "model",
    "moves",
    "order",
    "patterns",
    "pending",
    "places",
    "queues",
    "release",
    "removing",
    "retries",
    "schedules",
    "signals",
    "starting",
    "topics",
    "transactions",
    "unique_keys",
)
# The one effect of this import: pytest explains the suite's assertions as it does those of a test file.
pytest.register_assert_rewrite(
    *(name for name in (f"{__name__}.{module}" for module in _MODULES) if name not in sys.modules)
)

from shardq.testing.conformance.ack import AckContract  # noqa: E402
from shardq.testing.conformance.across_shards import CrossShardContract  # noqa: E402
from shardq.testing.conformance.append import AppendContract  # noqa: E402
from shardq.testing.conformance.bench import Bench  # noqa: E402
from shardq.testing.conformance.claim import ClaimContract  # noqa: E402
from shardq.testing.conformance.clients import ClientContract  # noqa: E402
from shardq.testing.conformance.concurrency import ConcurrencyContract  # noqa: E402
from shardq.testing.conformance.consumers import ConsumerContract  # noqa: E402
from shardq.testing.conformance.contract import Contract  # noqa: E402
from shardq.testing.conformance.dedupe import DedupeContract  # noqa: E402
from shardq.testing.conformance.directory import DirectoryContract  # noqa: E402
from shardq.testing.conformance.dropping import DropContract  # noqa: E402
from shardq.testing.conformance.expiry import ExpiryContract  # noqa: E402
from shardq.testing.conformance.extend import ExtendContract  # noqa: E402
from shardq.testing.conformance.fencing import FencingContract  # noqa: E402
from shardq.testing.conformance.finishing import FinishContract  # noqa: E402
from shardq.testing.conformance.forward import ForwardContract  # noqa: E402
from shardq.testing.conformance.group_leases import GroupLeaseContract  # noqa: E402
from shardq.testing.conformance.group_stays import GroupStayContract  # noqa: E402
from shardq.testing.conformance.groups import GroupContract  # noqa: E402
from shardq.testing.conformance.hints import HintContract  # noqa: E402
from shardq.testing.conformance.history import HistoryContract  # noqa: E402
from shardq.testing.conformance.incarnations import IncarnationContract  # noqa: E402
from shardq.testing.conformance.joined_clients import JoinedClientContract  # noqa: E402
from shardq.testing.conformance.large_bodies import LargeBodyContract  # noqa: E402
from shardq.testing.conformance.leftovers import LeftoverContract  # noqa: E402
from shardq.testing.conformance.limits import LimitContract  # noqa: E402
from shardq.testing.conformance.looking import LookingContract  # noqa: E402
from shardq.testing.conformance.model import ModelContract  # noqa: E402
from shardq.testing.conformance.moves import MoveContract  # noqa: E402
from shardq.testing.conformance.names import NameContract  # noqa: E402
from shardq.testing.conformance.order import OrderContract  # noqa: E402
from shardq.testing.conformance.patterns import PatternContract  # noqa: E402
from shardq.testing.conformance.pending import PendingContract  # noqa: E402
from shardq.testing.conformance.places import PlaceContract  # noqa: E402
from shardq.testing.conformance.queues import QueueContract  # noqa: E402
from shardq.testing.conformance.release import ReleaseContract  # noqa: E402
from shardq.testing.conformance.removing import RemovingContract  # noqa: E402
from shardq.testing.conformance.retries import RetryContract  # noqa: E402
from shardq.testing.conformance.schedules import ScheduleContract  # noqa: E402
from shardq.testing.conformance.signals import SignalContract  # noqa: E402
from shardq.testing.conformance.starting import StartContract  # noqa: E402
from shardq.testing.conformance.topics import TopicContract  # noqa: E402
from shardq.testing.conformance.transactions import TransactionContract  # noqa: E402
from shardq.testing.conformance.unique_keys import UniqueKeyContract  # noqa: E402

__all__ = [
    "AckContract",
    "AppendContract",
    "Bench",
    "ClaimContract",
    "ClientContract",
    "ConcurrencyContract",
    "ConsumerContract",
    "Contract",
    "CrossShardContract",
    "DedupeContract",
    "DirectoryContract",
    "DropContract",
    "ExpiryContract",
    "ExtendContract",
    "FencingContract",
    "FinishContract",
    "ForwardContract",
    "GroupContract",
    "GroupLeaseContract",
    "GroupStayContract",
    "HintContract",
    "HistoryContract",
    "IncarnationContract",
    "JoinedClientContract",
    "LargeBodyContract",
    "LeftoverContract",
    "LimitContract",
    "LookingContract",
    "ModelContract",
    "MoveContract",
    "NameContract",
    "OrderContract",
    "PatternContract",
    "PendingContract",
    "PlaceContract",
    "QueueContract",
    "ReleaseContract",
    "RemovingContract",
    "RetryContract",
    "ScheduleContract",
    "SignalContract",
    "StartContract",
    "StoreConformance",
    "TopicContract",
    "TransactionContract",
    "UniqueKeyContract",
]


class StoreConformance(
    ClientContract,
    QueueContract,
    NameContract,
    DropContract,
    IncarnationContract,
    AppendContract,
    ClaimContract,
    StartContract,
    FinishContract,
    ExpiryContract,
    OrderContract,
    AckContract,
    FencingContract,
    ExtendContract,
    ReleaseContract,
    PlaceContract,
    RetryContract,
    ForwardContract,
    MoveContract,
    PendingContract,
    CrossShardContract,
    GroupContract,
    GroupStayContract,
    GroupLeaseContract,
    LookingContract,
    HintContract,
    RemovingContract,
    HistoryContract,
    DirectoryContract,
    LeftoverContract,
    DedupeContract,
    UniqueKeyContract,
    ConsumerContract,
    SignalContract,
    ConcurrencyContract,
    TransactionContract,
    LimitContract,
    TopicContract,
    ScheduleContract,
    JoinedClientContract,
    LargeBodyContract,
    PatternContract,
    ModelContract,
):
    """Every contract. The subclass provides the ``harness`` fixture and has a name with ``Test``."""
