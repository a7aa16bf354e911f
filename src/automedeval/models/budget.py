"""The budget of the calls to an endpoint."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from automedeval.models.base import ChatError


class BudgetError(ChatError):
    """The highest possible cost of the next call exceeds the rest of `max_cost`."""


class Budget:
    """Keep spending below a limit (None: no limit); prices are per million tokens of prompt and of completion.

    The highest possible cost of a call is reserved before the call is made.
    """

    def __init__(self, limit: float | None, price_in: float = 0.0, price_out: float = 0.0):
        self.limit, self.price_in, self.price_out = limit, price_in, price_out
        self.spent = 0.0
        self._reserved: list[float] = []  # the highest possible costs of the calls in progress
        self._changed = threading.Condition()

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.price_in + completion_tokens * self.price_out) / 1e6

    @contextmanager
    def call(self, worst: float) -> Iterator[list[float]]:
        """Reserve `worst` for one call; the caller appends its true cost to the list that is yielded.

        Waits while calls in progress may still release money. If the list stays empty, `worst` is charged: the call may have
        been answered and charged although the answer was lost. BudgetError if no call is in progress, and `worst` exceeds what
        is left.
        """
        with self._changed:
            while self.limit is not None and self.spent + sum(self._reserved) + worst > self.limit:
                if not self._reserved:
                    left = f"{self.spent:.4f} is spent and the next call could cost {worst:.4f}"
                    raise BudgetError(f"--max_cost {self.limit:g}: {left}")
                self._changed.wait()
            self._reserved.append(worst)
        paid: list[float] = []
        try:
            yield paid
        finally:
            with self._changed:
                self._reserved.remove(worst)
                self.spent += sum(paid) if paid else worst
                self._changed.notify_all()
