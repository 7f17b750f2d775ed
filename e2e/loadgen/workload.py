"""Which chats exist and when each one starts: a pure function of the options and the seed.

It does not know how a request is sent or what came back.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Chat", "Workload", "chats", "system_prompt", "user_message"]

# Short common words: about one token each for a BPE vocabulary, five for a byte-level one.
WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "community",
    "name",
    "president",
    "team",
    "minute",
    "idea",
    "body",
    "information",
    "back",
]


@dataclass(frozen=True, slots=True)
class Workload:
    """The shape of the load. Rates are per second, lengths in words."""

    chats_per_second: float
    turns: int
    """Mean number of turns a chat has; each chat has between one and twice as many."""
    think_seconds: float
    """Mean pause between an answer and the next turn."""
    groups: int
    """How many different system prompts there are; chats draw one at random."""
    system_words: int
    user_words: int
    max_tokens: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Chat:
    """One conversation: when it starts (seconds from the beginning) and what its user says."""

    starts_at: float
    session_id: str
    group: int
    thinks: tuple[float, ...]
    """Pause before each turn, in seconds; the first is 0."""
    users: tuple[str, ...]
    pooled: bool
    """True: shares kept-alive connections; False: a fresh connection for every request."""


def system_prompt(load: Workload, group: int) -> str:
    """Return the system prompt of a group: always the same words for the same seed and group."""
    rng = random.Random(f"{load.seed}/system/{group}")  # noqa: S311  load, not secrets
    return f"You are assistant number {group}. " + " ".join(rng.choices(WORDS, k=load.system_words))


def user_message(rng: random.Random, words: int) -> str:
    """Return about `words` words, between half and one and a half times as many."""
    return " ".join(rng.choices(WORDS, k=max(1, round(words * rng.uniform(0.5, 1.5)))))


def chats(load: Workload) -> Iterator[Chat]:
    """Yield chats for ever in order of their start: Poisson arrivals, a quarter of them pooled."""
    rng = random.Random(f"{load.seed}/chats")  # noqa: S311  load, not secrets
    at = 0.0
    while True:
        at += rng.expovariate(load.chats_per_second)
        turns = rng.randint(1, max(1, 2 * load.turns - 1))
        pauses = (rng.expovariate(1 / load.think_seconds) for _ in range(turns - 1))
        yield Chat(
            starts_at=at,
            session_id=str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            group=rng.randrange(load.groups),
            thinks=(0.0, *pauses),
            users=tuple(user_message(rng, load.user_words) for _ in range(turns)),
            pooled=rng.random() < 0.25,
        )
