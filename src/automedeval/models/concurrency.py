"""How many requests an endpoint is sent at once: more and more, until its rate stops rising or it says that it is busy."""

import threading
import time
from collections.abc import Callable

START, MOST = 8, 256  # requests at once
_GAIN = 1.1  # twice the requests have to raise the rate so much
_ROUNDS = 2  # answers per request under way, after which a rate is measured


class Pace:
    """The number of requests at once.

    It begins with `START`. It doubles as long as that raises the rate of answers by a tenth, up to `MOST`. Otherwise it goes
    back one step and stays there. A 429 halves it, and ends the rise.

    Args:
        fixed: a number that does not change; 0 follows the server.
        clock: seconds.

    Attributes:
        limit: the number now.
        most: the largest that it can become.
    """

    def __init__(self, fixed: int = 0, clock: Callable[[], float] = time.monotonic):
        self.limit, self.most = fixed or START, fixed or MOST
        self._rising, self._follows, self._clock = not fixed, not fixed, clock
        self._best, self._count, self._since = 0.0, 0, 0.0
        self._lock = threading.Lock()

    def ended(self, running: int) -> None:
        """Count an answer; `running` requests were under way when it came."""
        with self._lock:
            if not self._rising or running < self.limit:  # a rate of fewer requests says nothing about this number
                self._count = 0
                return
            if not self._count:
                self._since = self._clock()
            self._count += 1
            if self._count <= _ROUNDS * self.limit:
                return
            rate = (self._count - 1) / max(1e-9, self._clock() - self._since)
            self._count = 0
            if rate > _GAIN * self._best:
                self._best = rate
                self.limit = min(self.most, 2 * self.limit)
                self._rising = self.limit < self.most
            else:
                self.limit, self._rising = max(1, self.limit // 2), False

    def busy(self) -> None:
        """Take fewer requests: the server said 429."""
        with self._lock:
            if self._follows and (self._rising or self._clock() - self._since > 1.0):  # once for those sent together
                self.limit, self._rising, self._since = max(1, self.limit // 2), False, self._clock()
