"""How the driver moves new weights from the learner (``sender.py``) to whatever acts (``receiver.py``).

A transport never leaves receivers with different weights behind: one that is lost on the way is restarted and sent the
same version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from rlinf.cluster.api import Handle, WorkerGroup
from rlinf.cluster.errors import WORKER_LOST, ClusterError
from rlinf.cluster.weights.receiver import added
from rlinf.cluster.weights.sender import WeightSender
from rlinf.data import weight_sources
from rlinf.data.messages import Metrics, WeightForm

Restart = Callable[[int, Exception], object]
"""Restarts the receiver of this rank, and sends it the weights again."""
LATE_S = 120.0
"""How long one side of a broadcast waits for the others, in seconds."""
_log = logging.getLogger(__name__)


class WeightTransport(Protocol):
    """One way for weights."""

    name: str

    def send(self, version: int, restart: Restart) -> Metrics:
        """Send the learner's weights, as ``version``, to all receivers; return the largest of their figures."""

    def send_again(self, rank: int) -> None:
        """Send the weights of the last :meth:`send` to a receiver that was restarted since."""


class _Travelling:
    """Decides the form of a transport's sendings, and holds the sources of each.

    Everything is sent at first; later only what training changes, if the rest stays. The rest stays for low-rank
    adapters, if all receivers can combine them with their layers.
    """

    def __init__(self, learner: WorkerGroup, receivers: WorkerGroup) -> None:
        self._learner, self._receivers = learner, receivers
        self._apart: bool | None = None
        self._whole_sent = False
        self._sources: dict[WeightForm, list[int]] = {}

    def next(self) -> WeightForm:
        """Return the form of the next sending."""
        whole = self.whole()
        return "changing" if whole == "separate" and self._whole_sent else whole

    def whole(self) -> WeightForm:
        """Return the form of a sending to a receiver that has nothing yet."""
        if self._apart is None:
            able = all(self._receivers.call("takes_adapters"))
            self._apart = able and bool(self._learner.call(WeightSender.has_adapters)[0])
        return "separate" if self._apart else "merged"

    def sources(self, form: WeightForm) -> list[int]:
        """Return the learner's rank that gives each part of the weights."""
        if form not in self._sources:
            self._sources[form] = self._learner.call_one(0, "weight_sources", form=form)
        return self._sources[form]

    def rounds(self, method: str, form: WeightForm, **options: Any) -> Iterator[tuple[list[Handle], list[Handle]]]:
        """Call ``method`` on all ranks, for a part of each source at a time.

        Each item has the handles that show that a rank is done, and those of the parts, which stay on their nodes."""
        order = self.sources(form)
        for parts in weight_sources.rounds(order):
            made = [
                self._learner.submit_remote(rank, method, parts=parts, form=form, **options)
                for rank in range(self._learner.size)
            ]
            yield [done for done, _ in made], [made[order[part]][1] for part in parts]

    def arrived(self) -> None:
        """Record that a sending has reached all receivers."""
        self._whole_sent = True


class ObjectStore:
    """From worker to worker through Ray's object store; in one process (``cluster.backend: local``) by reference."""

    name = "object_store"

    def __init__(self, learner: WorkerGroup, receivers: WorkerGroup) -> None:
        self.learner, self.receivers = learner, receivers
        self._travelling = _Travelling(learner, receivers)
        self._whole: list[Handle] = []
        """The parts of the last sending of everything: they stay in the store."""
        self._changed: list[Handle] = []
        """Those of a later sending of what had changed."""

    def send(self, version: int, restart: Restart) -> Metrics:
        numbers: list[Metrics] = []
        form = self._travelling.next()
        kept: list[Handle] = []
        if form == "changing":
            self._changed = kept
        else:
            self._whole = kept
        for done, parts in self._travelling.rounds("held_weights", form, version=version):
            kept += parts
            loads = [self.receivers.submit("load", part) for part in parts]
            self.learner.gather(done)
            numbers.append(_loaded(loads, restart))
        self._travelling.arrived()
        return added(numbers)

    def send_again(self, rank: int) -> None:
        for made in [*self._whole, *self._changed]:
            self.receivers.call_one(rank, "load", made)


class SharedMemory:
    """Through memory that the learner's sources and all receivers share: they are on one node.

    The weights stay there until the next ones: a receiver that is restarted reads them again.
    """

    name = "shared_memory"

    def __init__(self, learner: WorkerGroup, receivers: WorkerGroup) -> None:
        self.learner, self.receivers = learner, receivers
        self._travelling = _Travelling(learner, receivers)
        self._port: int | None = None
        self._sending = self._whole = 0

    def send(self, version: int, restart: Restart) -> Metrics:
        if self._port is None:
            self._port = self.learner.call(WeightSender.host_addresses, timeout_s=LATE_S)[0]
        form = self._travelling.next()
        # The last sending of everything stays for receivers that are restarted.
        stays = form == "changing" and self._sending == self._whole
        replaced, self._sending = 0 if stays else self._sending, self._sending + 1
        if form != "changing":
            self._whole = self._sending
        loads = [self._load(rank, self._sending) for rank in range(self.receivers.size)]
        options: dict[str, Any] = {"port": self._port, "timeout_s": LATE_S, "form": form}
        self.learner.call("write_weights", version=version, sending=self._sending, replaced=replaced, **options)
        numbers = _loaded([loads], restart)
        self._travelling.arrived()
        return numbers

    def send_again(self, rank: int) -> None:
        for sending in sorted({self._whole, self._sending} - {0}):
            self._load(rank, sending).result()

    def _load(self, rank: int, sending: int) -> Handle:
        return self.receivers.submit_one(rank, "load_segments", self._port, sending, timeout_s=LATE_S)


class Collective:
    """A broadcast from each of the learner's sources to all receivers, in a process group of their own."""

    name = "collective"

    def __init__(
        self, learner: WorkerGroup, receivers: WorkerGroup, *, device: str, fall_back: bool, keep: bool = False
    ) -> None:
        """``fall_back``: to the object store, with a warning, if the groups can't be formed. ``keep``: the learner
        goes on training while the others act. So it holds a copy of what it sent for one that has to be restarted."""
        self.learner, self.receivers = learner, receivers
        self._device = device
        self._store = ObjectStore(learner, receivers)
        self._fall_back, self._keep = fall_back, keep
        self._travelling = _Travelling(learner, receivers)
        self._formed = False
        self._version = 0

    def send(self, version: int, restart: Restart) -> Metrics:
        self._version = version
        problem: str | None = None
        for _ in range(2):
            if not self._formed and (problem := self._form()):
                break
            dead: dict[int, Exception] = {}
            result = self._broadcast(version, dead)
            if not isinstance(result, str):
                return result
            # A group is of no use without one of its members: new ones, and the same once more.
            self._formed, problem = False, result
            _log.warning("weights %d are sent again: %s", version, problem)
            for rank, error in dead.items():
                restart(rank, error)
        if not self._fall_back:
            raise self._not_sent(version, problem)
        _log.warning("rollout.weight_transport: weights go through the object store from now on: %s", problem)
        return self._store.send(version, restart)

    def send_again(self, rank: int) -> None:
        """Past the groups: the other receivers are busy. The next :meth:`send` forms new ones."""
        self._formed = False
        form = self._travelling.whole()
        for done, parts in self._travelling.rounds("sent_weights", form, version=self._version):
            for part in parts:
                self.receivers.call_one(rank, "load", part)
            self.learner.gather(done)

    def _not_sent(self, version: int, problem: str | None) -> ClusterError:
        return ClusterError(f"weights {version} did not reach the {self.receivers.name} group: {problem}")

    def _broadcast(self, version: int, dead: dict[int, Exception]) -> Metrics | str:
        """Return the receivers' figures, or what went wrong; those that are lost are put into ``dead``."""
        takes, sends = self._begin_broadcast(version)
        numbers = outcomes(takes, dead)
        problems = [text for text in (*self.learner.gather(sends), *numbers) if isinstance(text, str)]
        if dead or problems:
            return "\n".join([*problems, *map(str, dead.values())])
        self._travelling.arrived()
        return largest(numbers)

    def _form(self) -> str | None:
        """Bring the processes together; return what went wrong, or None."""
        joins, opens = self._begin_form()
        met = (*self.receivers.gather(joins), *self.learner.gather(opens))
        problems = [text for text in met if isinstance(text, str)]
        self._formed = not problems
        return "\n".join(problems) or None

    def _begin_broadcast(self, version: int) -> tuple[list[Handle], list[Handle]]:
        """Begin to receive and to send; return the receivers' calls, and the learner's."""
        form = self._travelling.next()
        takes = self.receivers.submit("receive_weights", self._travelling.sources(form))
        return takes, self.learner.submit("broadcast_weights", version=version, keep=self._keep, form=form)

    def _begin_form(self) -> tuple[list[Handle], list[Handle]]:
        """Begin to meet, likewise."""
        size = self.receivers.size + 1
        options: dict[str, Any] = {"size": size, "device": self._device, "timeout_s": LATE_S}
        ports = self.learner.call(WeightSender.host_broadcast, timeout_s=LATE_S)
        addresses = zip(self.learner.nodes(), ports, strict=True)
        meetings = {source: (node, port) for source, (node, port) in enumerate(addresses) if port is not None}
        joins = [
            self.receivers.submit_one(rank, "join_broadcast", meetings, rank=rank + 1, **options)
            for rank in range(self.receivers.size)
        ]
        return joins, self.learner.submit("open_broadcast", **options)


def _loaded(loads: Iterable[Sequence[Handle]], restart: Restart) -> Metrics:
    """Return the receivers' figures once all have the weights of each call; one lost in several is restarted once."""
    dead: dict[int, Exception] = {}
    numbers = [largest(outcomes(handles, dead)) for handles in loads]
    for rank, error in dead.items():
        restart(rank, error)
    return added(numbers)


def outcomes(handles: Sequence[Handle], dead: dict[int, Exception]) -> list[Metrics | str]:
    """Collect the return values of the receivers; those that are lost are put into ``dead``."""
    results: list[Metrics | str] = []
    for rank, handle in enumerate(handles):
        try:
            results.append(handle.result())
        except WORKER_LOST as error:
            dead[rank] = error
    return results


def largest(received: Sequence[Metrics | str]) -> Metrics:
    """Return the largest of each figure of the receivers that have one."""
    numbers = [outcome for outcome in received if not isinstance(outcome, str)]
    names = numbers[0] if numbers else {}
    return {name: max(float(number[name]) for number in numbers) for name in names}


class StoredWeights:
    """The weight transport of samplers without a learner; one that is restarted reads its folder again."""

    name = "stored"

    def send(self, version: int, restart: Restart) -> Metrics:
        """Nothing: samplers answer with the weights that they were built with."""
        return {}

    def send_again(self, rank: int) -> None:
        """Nothing, likewise."""
