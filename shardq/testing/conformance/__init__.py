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
from pkgutil import iter_modules

import pytest

# The one effect of this import: pytest explains the suite's assertions as it does those of a test file.
pytest.register_assert_rewrite(
    *(module.name for module in iter_modules(__path__, f"{__name__}.") if module.name not in sys.modules)
)

from shardq.testing.conformance.ack import AckContract, FencingContract  # noqa: E402
from shardq.testing.conformance.across_shards import CrossShardContract  # noqa: E402
from shardq.testing.conformance.append import AppendContract  # noqa: E402
from shardq.testing.conformance.bench import Bench  # noqa: E402
from shardq.testing.conformance.claim import ClaimContract, OrderContract  # noqa: E402
from shardq.testing.conformance.clients import ClientContract, ConsumerContract  # noqa: E402
from shardq.testing.conformance.concurrency import ConcurrencyContract  # noqa: E402
from shardq.testing.conformance.contract import Contract  # noqa: E402
from shardq.testing.conformance.dropping import DropContract, LeftoverContract  # noqa: E402
from shardq.testing.conformance.extend import ExtendContract, StartContract  # noqa: E402
from shardq.testing.conformance.features import (  # noqa: E402
    LargeBodyContract,
    PatternContract,
    ScheduleContract,
    TopicContract,
)
from shardq.testing.conformance.finishing import FinishContract  # noqa: E402
from shardq.testing.conformance.forward import ForwardContract, MoveContract  # noqa: E402
from shardq.testing.conformance.group_leases import GroupLeaseContract  # noqa: E402
from shardq.testing.conformance.group_stays import GroupStayContract  # noqa: E402
from shardq.testing.conformance.groups import GroupContract  # noqa: E402
from shardq.testing.conformance.hints import DirectoryContract, HintContract  # noqa: E402
from shardq.testing.conformance.history import ExpiryContract, HistoryContract  # noqa: E402
from shardq.testing.conformance.incarnations import IncarnationContract  # noqa: E402
from shardq.testing.conformance.joined_clients import JoinedClientContract  # noqa: E402
from shardq.testing.conformance.keys import DedupeContract, UniqueKeyContract  # noqa: E402
from shardq.testing.conformance.limits import LimitContract  # noqa: E402
from shardq.testing.conformance.peeking import PeekContract  # noqa: E402
from shardq.testing.conformance.pending import PendingContract, RemovingContract  # noqa: E402
from shardq.testing.conformance.queues import NameContract, QueueContract  # noqa: E402
from shardq.testing.conformance.release import PlaceContract, ReleaseContract  # noqa: E402
from shardq.testing.conformance.retries import RetryContract  # noqa: E402
from shardq.testing.conformance.signals import SignalContract  # noqa: E402
from shardq.testing.conformance.transactions import TransactionContract  # noqa: E402
from shardq.testing.state_machine import ModelContract  # noqa: E402

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
    "ModelContract",
    "MoveContract",
    "NameContract",
    "OrderContract",
    "PatternContract",
    "PeekContract",
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
    PeekContract,
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
