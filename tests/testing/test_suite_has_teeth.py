"""Each broken store is caught by the contract of what it breaks, without the state machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.defective_stores.applications import BROKEN_LARGE_BODIES, BROKEN_SCHEDULES, BROKEN_TOPICS
from tests.defective_stores.claims import BROKEN_CLAIMS
from tests.defective_stores.hints import BROKEN_HINTS
from tests.defective_stores.keys import BROKEN_KEYS
from tests.defective_stores.limits import BROKEN_LIMITS
from tests.defective_stores.stores import BROKEN_STORES
from tests.defective_stores.transactions import BROKEN_JOINED_CLIENTS, BROKEN_TRANSACTIONS

pytestmark = pytest.mark.timeout(900)  # 20 seconds on an idle machine

HERE = Path(__file__).parent

CAUGHT_BY = {
    "DropsAcks": "AckContract",
    "IgnoresTheFence": "FencingContract",
    "HidesTheLost": "FencingContract",
    "ForgetsToHide": "ClaimContract",
    "DeliversEarly": "AppendContract",
    "ForgetsExpiry": "ExpiryContract",
    "HidesExpiryWithTheBodies": "ExpiryContract",
    "ForgetsExpiryOfWhatItSplits": "ExpiryContract",
    "DuplicatesAppends": "AppendContract",
    "LosesTheLastOfABulk": "AppendContract",
    "LosesTheRestOfASplit": "ClaimContract",
    "TakesMoreThanAsked": "ClaimContract",
    "ClaimsInDisorder": "OrderContract",
    "ForgetsDeliveries": "ReleaseContract",
    "CountsEveryRelease": "ReleaseContract",
    "CountsWhatIsPutOff": "ReleaseContract",
    "CountsEveryClaim": "StartContract",
    "CountsNoStart": "StartContract",
    "StartsWhatItExtends": "StartContract",
    "PutsTheUnseenLast": "PlaceContract",
    "ForgetsMoves": "MoveContract",
    "TakesAcksForMoves": "MoveContract",
    "ConfirmsKeysForAnyone": "DedupeContract",
    "RemembersDroppedQueues": "IncarnationContract",
    "KeepsKeysOfDroppedQueues": "IncarnationContract",
    "ReleasesAtOnce": "ReleaseContract",
    "ForwardsInTwoSteps": "ForwardContract",
    "ExchangesWhatIsHeld": "PendingContract",
    "SettlesStepByStep": "CrossShardContract",
    "TellsEachOfAll": "CrossShardContract",
    "StopsAtALostForward": "CrossShardContract",
    "KeepsNoHistory": "HistoryContract",
    "ShortensUnasked": "ExtendContract",
    "ShowsBodiesUnasked": "PeekContract",
    "PurgesOnlyWhatWaits": "RemovingContract",
    "MiscountsTheHeld": "ClaimContract",
    "LooksAtAllTimes": "PeekContract",
    "LooksAtNoOtherPriority": "PeekContract",
    "MeasuresWhatIsHeld": "PeekContract",
    "MeasuresWholeBundles": "PeekContract",
    "MeasuresNothing": "PeekContract",
    "HidesWhoHolds": "PeekContract",
    "CountsEveryDelivery": "PeekContract",
    "AnswersOnlyWhatItFinds": "PeekContract",
    "FindsBundlesOnce": "PeekContract",
    "ShowsWhatNobodyHolds": "PeekContract",
    "HidesWhatIsHeldForLong": "PeekContract",
    "ForgetsTheDead": "ConsumerContract",
    "RemembersForEver": "ConsumerContract",
    "ForgetsShards": "DirectoryContract",
    "SweepsNothing": "LeftoverContract",
    "ReservesForEveryone": "DedupeContract",
    "DropsTheNameOnly": "DropContract",
    "DropsWhatHasChanged": "DropContract",
    "ReadsAPathInNames": "NameContract",
    "TellsOfOneQueueOnly": "SignalContract",
    "LetsTheNextGo": "GroupContract",
    "ForgetsToLetTheNextGo": "GroupContract",
    "TakesOneOfEachGroup": "GroupContract",
    "OrdersGroupsByIds": "GroupContract",
    "LosesTheTailOfAGroup": "GroupContract",
    "LeavesHeldWhatIsBehind": "GroupLeaseContract",
    "BlocksWhatIsBehind": "GroupLeaseContract",
    "LeavesWhatBlocksToItsHolder": "GroupLeaseContract",
    "ReplacesAtTheEnd": "GroupStayContract",
    "OffersWhatIsBehind": "GroupStayContract",
    "Hinted": "HintContract",
    **{each.__name__: "FinishContract" for each in BROKEN_CLAIMS},
    "FinishesWhatHasExpired": "ExpiryContract",
    **{each.__name__: "UniqueKeyContract" for each in BROKEN_KEYS},
    **{each.__name__: "LimitContract" for each in BROKEN_LIMITS},
    **{each.__name__: "TransactionContract" for each in BROKEN_TRANSACTIONS},
    **{each.__name__: "JoinedClientContract" for each in BROKEN_JOINED_CLIENTS},
    **{each.__name__: "TopicContract" for each in BROKEN_TOPICS},
    **{each.__name__: "ScheduleContract" for each in BROKEN_SCHEDULES},
    **{each.__name__: "LargeBodyContract" for each in BROKEN_LARGE_BODIES},
    **{each.__name__: "HintContract" for each in BROKEN_HINTS},
}
"""The contract of what a store breaks. One that is not here is given to all contracts, which takes longer."""

SOUND = ("WrappedStore", "FinishingStore", "Hinted")

SUITE = """
import functools
import pathlib
import sys
import tempfile

import pytest

sys.path.insert(0, {conformance!r})

from tests.defective_stores.claims import FinishingStore
from tests.defective_stores.hints import BROKEN_HINTS, HintedStore
from tests.defective_stores.stores import BROKEN_STORES
from shardq.testing import conformance
from shardq.storage.wrapped_store import WrappedStore
from tests.conformance.test_sqlite import SqliteHarness


class BrokenHarness(SqliteHarness):
    def __init__(self, folder, broken):
        super().__init__(folder)
        self.broken = broken

    def open(self):
        return self.broken(super().open())

    def raw_mislead(self, shard):
        return issubclass(self.broken, HintedStore) and self.broken.mislead(shard)


@functools.cache
def harness_for(broken):
    return BrokenHarness(pathlib.Path(tempfile.mkdtemp(dir=pathlib.Path(__file__).parent)), broken)


@pytest.fixture
def harness(request):
    return harness_for(request.cls.broken)


class Hinted(HintedStore):
    pass


for broken in (WrappedStore, FinishingStore, Hinted, *BROKEN_STORES, *BROKEN_HINTS)[{third}::3]:
    name = "Test" + broken.__name__
    contract = getattr(conformance, {caught_by!r}.get(broken.__name__, "StoreConformance"))
    globals()[name] = type(name, (contract,), {{"broken": broken}})
"""

CONFTEST = """
import json
import pathlib

import pytest

caught = {}


def pytest_runtestloop(session):
    for item in session.items:
        if item.cls.broken.__name__ not in caught:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.failed:
        caught.setdefault(item.cls.broken.__name__, f"{item.name}\\n{report.longreprtext}")
    return report


def pytest_sessionfinish():
    pathlib.Path(__file__).with_name("caught.json").write_text(json.dumps(caught))
"""


@pytest.mark.parametrize("third", range(3))
def test_the_contracts_fail_each_broken_store_and_no_sound_one(tmp_path: Path, third: int) -> None:
    """Run the contract of each defect until its first failure, and all of them on a store that has none."""
    broken = {each.__name__ for each in (*BROKEN_STORES, *BROKEN_HINTS)[third::3]}
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    suite = tmp_path / "test_broken.py"
    suite.write_text(
        SUITE.format(conformance=str(HERE.parent / "conformance"), caught_by=CAUGHT_BY, third=third)
    )
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--tb=short",
        "-k",
        "not agrees_with_the_model",
    ]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(suite)], cwd=tmp_path, check=False, capture_output=True
    )
    caught = json.loads((tmp_path / "caught.json").read_text())
    assert broken - caught.keys() == set()
    assert {name: caught.get(name) for name in SOUND} == dict.fromkeys(SOUND)
