"""A group of workers as one: a lost worker is restarted, brought to its previous state, and called again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlinf.base.errors import UserError
from rlinf.cluster.api import Handle, WorkerGroup
from rlinf.cluster.errors import WORKER_LOST, WorkerDied, WorkerError
from rlinf.data.messages import Metrics

if TYPE_CHECKING:
    from rlinf.cluster.weights.proof import WeightProof
    from rlinf.cluster.weights.transport import WeightTransport

_log = logging.getLogger(__name__)


class ResilientPool:
    """Restarts lost workers within the group's budget (`cluster.max_restarts` a rank).

    A subclass defines in :meth:`recover` what a new worker needs to reach the state of its predecessor.
    """

    advice = ""
    """What to change where a worker is lost over the same call twice; with it that is a UserError."""

    def __init__(self, group: WorkerGroup) -> None:
        self.group = group
        self.size = group.size
        self.restarts = 0
        self.lives = [0] * group.size
        """How often each rank was restarted: an answer to a question of its predecessor is of no use."""

    def recover(self, rank: int) -> Any:
        """Bring a restarted worker to the state of its predecessor; what it returns, :meth:`restart` returns."""

    def restart(self, rank: int, error: Exception, *, counted: bool = True) -> Any:
        """Restarts a worker that ``error`` ended; one that is lost over its recovery too is restarted again.

        :raises WorkerError: the budget is used up. Without ``counted`` the first restart takes nothing of it.
        """
        return self._restart_together({rank: error}, counted=counted)[rank]

    def _restart_together(self, lost: Mapping[int, Exception], *, counted: bool = True) -> dict[int, Any]:
        """Restarts several workers, which come up at the same time; what :meth:`recover` returns of each."""
        recovered: dict[int, Any] = {}
        while lost:
            for rank, error in lost.items():
                _log.warning("%s rank %d is restarted: %s", self.group.name, rank, error)
            self.group.restart(list(lost), counted=counted)
            self.restarts += len(lost)
            again: dict[int, Exception] = {}
            for rank in lost:
                self.lives[rank] += 1
                try:
                    recovered[rank] = self.recover(rank)
                except WORKER_LOST as error:
                    again[rank] = error
            lost, counted = again, True
        return recovered

    def call(self, method: str, /, *args: Any, per_rank: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """Run ``method`` on every rank, with ``args`` or each rank's own; results are in rank order."""
        rows = [args] * self.size if per_rank is None else per_rank
        handles = [self._submit(rank, method, *row) for rank, row in enumerate(rows)]

        values: dict[int, Any] = {}
        lost: dict[int, Exception] = {}
        for rank, handle in enumerate(handles):
            if rank in values or rank in lost:
                continue
            self._collect(rank, handle, values, lost)
            if rank in lost:
                # What else is lost by now comes back at the same time; workers that still work are not waited for.
                for other in range(rank + 1, self.size):
                    if other not in values and handles[other].done():
                        self._collect(other, handles[other], values, lost)
                with self._advising():
                    self._restart_together(lost)
                    again = {other: self._submit(other, method, *rows[other]) for other in sorted(lost)}
                    values |= {other: handle.result() for other, handle in again.items()}
                lost.clear()
        return [values[rank] for rank in range(self.size)]

    def _submit(self, rank: int, method: str, /, *args: Any) -> Handle:
        return self.group.submit_one(rank, method, *args)

    def call_one(self, rank: int, method: str, /, *args: Any) -> Any:
        """Run ``method`` on one rank; a worker that is lost during it is restarted and called again."""
        try:
            return self.group.call_one(rank, method, *args)
        except WORKER_LOST as error:
            with self._advising():
                self._restart_together({rank: error})
                return self.group.call_one(rank, method, *args)

    @contextmanager
    def _advising(self) -> Iterator[None]:
        """Add the pool's advice to the error of a worker that dies in the same call twice."""
        try:
            yield
        except WorkerError as error:
            # A worker that lives reports its own error.
            if self.advice and (isinstance(error, WorkerDied) or error.method == "restart"):
                raise UserError(f"{error}\n{self.advice}") from error
            raise

    def _collect(self, rank: int, handle: Handle, values: dict[int, Any], lost: dict[int, Exception]) -> None:
        """Store the value of a call, or that its worker was lost."""
        try:
            values[rank] = handle.result()
        except WORKER_LOST as error:
            lost[rank] = error


class PolicyPool(ResilientPool):
    """Workers that act with a copy of the policy: text samplers, policy servers, and env workers that act themselves.

    One that is restarted is sent the weights of the others.
    """

    version = 0
    """Of the weights that were sent last."""
    _transport: WeightTransport | None = None
    _proof: WeightProof | None = None

    @property
    def transport(self) -> WeightTransport:
        """The way that weights take to here."""
        if self._transport is None:
            raise RuntimeError(f"{self.group.name} is not connected to a learner")
        return self._transport

    def connect(self, transport: WeightTransport, proof: WeightProof | None = None) -> None:
        """Weights come by ``transport`` from now on, and by ``proof`` all workers show that they have them."""
        self._transport, self._proof = transport, proof

    @property
    def unproved(self) -> str | None:
        """Why it cannot be shown that the workers hold the weights that they were sent; None: it is shown."""
        return None if self._proof is None else self._proof.unread

    def send_weights(self, version: int) -> Metrics:
        """Send the learner's weights to all workers; whatever they do next follows them.

        :raises WeightsNotHeld: one of them does not have them.
        """
        self.version = version
        if self._proof is not None:
            self._proof.begin()
        figures = self.transport.send(version, self.restart)
        return figures if self._proof is None else {**figures, **self._proof.check(version, self)}

    def recover(self, rank: int) -> Any:
        if self._transport is not None:
            self._transport.send_again(rank)
        if self._proof is not None:
            self._proof.check_one(rank, self.group)
