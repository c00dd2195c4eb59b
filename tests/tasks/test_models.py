"""Models of pydantic as arguments and results of tasks: they arrive as they were sent, or are refused."""

from __future__ import annotations

import dataclasses
import sys
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pytest
from pydantic import (
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    field_validator,
)

import shardq
from shardq.tasks import ArgumentsRejected, TaskFailed, Tasks

T = TypeVar("T")


class Dog(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, serialize_by_alias=True)
    kind: Literal["dog"] = "dog"
    number: int = Field(alias="theNumber")
    born: datetime
    id: uuid.UUID
    tags: set[str] = {"good"}
    price: Decimal = Decimal("1.10")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.number


class Owner(BaseModel):
    kind: Literal["owner"] = "owner"
    dogs: list[Dog | int] = []
    page: HttpUrl = HttpUrl("http://example.com/")
    keys: dict[int, bytes] = {1: b"text"}
    first: str = Field(default="a", validation_alias=AliasPath("names", 0), serialization_alias="second")


class Pack(RootModel[list[Dog]]):
    pass


class Page(BaseModel, Generic[T]):
    items: list[T]


class Photo(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


@dataclasses.dataclass
class Visit:
    who: Dog | Owner
    again: Dog | None = None


class Visits(msgspec.Struct):
    by_day: dict[str, list[Dog]]


dog = Dog(theNumber=3, born=datetime(2020, 1, 1, tzinfo=UTC), id=uuid.uuid4())
owner = Owner(dogs=[dog, 1])


def task_of(tasks: Tasks, kind: Any) -> Any:
    def work(value: Any) -> Any:
        seen.append(value)
        return value

    seen: list[Any] = []
    work.__annotations__ = {"value": kind, "return": kind}
    return tasks.task(name=str(kind))(work)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Dog, [dog]),
        (Dog | None, [dog, None]),
        (Dog | Owner, [dog, owner]),
        (Annotated[Dog | Owner, Field(discriminator="kind")], [dog, owner]),
        (list[Dog | str], [[dog, "x"], []]),
        (tuple[Dog | int, datetime], [(dog, dog.born), (1, dog.born)]),
        (dict[str, Owner], [{"x": owner}]),
        (Pack, [Pack([dog])]),
        (Page[Dog], [Page[Dog](items=[dog])]),
        (Photo, [Photo(data=b"\xff\x00")]),
        (Visit, [Visit(dog), Visit(owner, dog)]),
        (Visits, [Visits({"monday": [dog, dog]})]),
    ],
    ids=range(12),
)
def test_a_model_arrives_as_it_was_sent_and_so_does_what_the_task_returns(
    tasks: Tasks, kind: Any, values: list[Any]
) -> None:
    task = task_of(tasks, kind)
    results = [task.send(value) for value in values]
    assert tasks.drain().worked == len(values)
    found = [result.get(timeout=0) for result in results]
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


class Secret(BaseModel):
    password: SecretStr


class Loose(BaseModel):
    anything: Any


class Raw(BaseModel):
    data: bytes


class Odd(BaseModel):
    number: int = 1

    @field_validator("number")
    @classmethod
    def is_odd(cls, number: int) -> int:
        if number == 7:
            raise LookupError("seven")
        return number


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (Secret, Secret(password=SecretStr("x")), "a Secret is not the same when what pydantic dumps"),
        (Loose, Loose(anything=dog), "a Loose is not the same"),
        (Raw, Raw(data=b"\xff"), "invalid utf-8"),
        (Raw | bytes, b"x", "a bytes beside a model"),
        (Owner, dog, "Input should be 'owner'"),
        (Owner, Owner.model_construct(dogs="none"), "dogs"),
        (Odd, Odd.model_construct(number=7), "seven"),
    ],
)
def test_what_would_not_arrive_as_it_was_sent_is_refused_before_anything_is_stored(
    tasks: Tasks, client: shardq.Client, kind: Any, value: Any, why: str
) -> None:
    with pytest.raises(ArgumentsRejected, match=why):
        task_of(tasks, kind).send(value)
    assert client.queues() == ()


def test_a_result_that_would_not_arrive_as_it_is_fails_the_task(tasks: Tasks) -> None:
    @tasks.task
    def secret() -> Secret:
        return Secret(password=SecretStr("x"))

    result = secret.send()
    assert tasks.drain().dead_lettered == 1
    with pytest.raises(TaskFailed, match=r"ResultRejected: the result of task 'secret', .* a Secret is not"):
        result.get(timeout=0)


class Counter(BaseModel):
    _lock: object = PrivateAttr(default_factory=object)
    number: int
    cached: int = Field(0, exclude=True)


def test_private_attributes_and_fields_that_are_left_out_are_not_sent(tasks: Tasks) -> None:
    assert task_of(tasks, Counter).call(Counter(number=3, cached=5)).model_dump() == {"number": 3}


def test_without_pydantic_a_type_that_msgspec_cannot_read_is_refused(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(shardq.InvalidSetting, match="more than one custom type"):
        task_of(tasks, Dog | Owner).send(dog)
