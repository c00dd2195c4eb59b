"""A mail service: a web API writes mails into an SQLite table, and tasks send them by SMTP."""

from __future__ import annotations

import os
import smtplib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from email.mime.text import MIMEText
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import shardq
from shardq.tasks import RetryPolicy, Tasks

FILE = os.environ.get("MAIL_FILE", "mail.db")
SMTP = os.environ.get("SMTP_HOST", "localhost"), int(os.environ.get("SMTP_PORT", "25"))
URL = os.environ.get("SHARDQ_URL", f"sqlite:///{FILE}?tables=shardq_")
TABLE = (
    "CREATE TABLE IF NOT EXISTS mail (id INTEGER PRIMARY KEY, customer, address, subject, body, task, digest)"
)
client, tasks = shardq.connect(URL), Tasks(URL)


class Mail(BaseModel):
    """A mail to a customer."""

    customer: str
    address: str
    subject: str
    body: str


@contextmanager
def table() -> Iterator[sqlite3.Connection]:
    """Open the table for one transaction."""
    with closing(sqlite3.connect(FILE, timeout=10)) as db, db:
        db.row_factory = sqlite3.Row
        yield db


@tasks.task(queue="mail", retry=RetryPolicy(attempts=3, delay=1))
def deliver(mail_id: int) -> None:
    """Send a mail, on one of eight connections."""
    with table() as db:
        mail = db.execute("SELECT * FROM mail WHERE id = ?", (mail_id,)).fetchone()
    message = MIMEText(mail["body"])
    message["To"], message["From"], message["Subject"] = mail["address"], "shop@localhost", mail["subject"]
    with client.semaphore("smtp", permits=8).acquire(), smtplib.SMTP(*SMTP) as smtp:
        smtp.send_message(message)


@tasks.task(queue="minutes", keep_result=0)
def digest() -> None:
    """Mail the shop what is new, and send what a process that died has left unsent."""
    with table() as db:
        new = db.execute("UPDATE mail SET digest = 1 WHERE digest IS NULL RETURNING subject").fetchall()
        left = db.execute("SELECT id, customer FROM mail WHERE task IS NULL ORDER BY id").fetchall()
    for each in left:
        send(*each)
    if text := "\n".join(subject for (subject,) in new if subject != "Digest"):
        post(Mail(customer="shop", address="owner@localhost", subject="Digest", body=text))


def send(mail_id: int, customer: str) -> None:
    """Send the task of a mail, once, behind those of the customer's earlier mails."""
    task = deliver.options(group=customer, dedupe_key=f"mail-{mail_id}").send(mail_id)
    with table() as db:
        db.execute("UPDATE mail SET task = ? WHERE id = ?", (task.id, mail_id))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Make the table, and begin the schedule."""
    with table() as db:
        db.execute(TABLE)
    digest.schedule("mail-digest", every=60, exist_ok=True)
    yield


api = FastAPI(lifespan=lifespan)


@api.post("/mails")
def post(mail: Mail) -> dict[str, Any]:
    """Take a mail."""
    with table() as db:
        added = db.execute("INSERT INTO mail VALUES (NULL, ?, ?, ?, ?, NULL, NULL)", [*dict(mail).values()])
    send(added.lastrowid or 0, mail.customer)
    return {"id": added.lastrowid}


@api.get("/mails/{mail_id}")
def get(mail_id: int) -> dict[str, Any]:
    """Return a mail, and whether it waits, was sent or has failed."""
    with table() as db:
        mail = db.execute("SELECT * FROM mail WHERE id = ?", (mail_id,)).fetchone()
    if mail is None:
        raise HTTPException(404)
    return dict(mail) | {"state": deliver.result(mail["task"]).state if mail["task"] else "waiting"}


@api.get("/status")
def status() -> dict[str, Any]:
    """Return how many mails wait, and why others are dead letters."""
    reasons = [each.headers["shardq-reason"] for each in client.queue("mail.dead").peek(100)]
    return {"waiting": client.queue("mail").counts().ready, "dead": reasons}
