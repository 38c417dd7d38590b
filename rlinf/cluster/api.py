"""The interface that the loop is written against: a cluster, its groups of workers, and calls under way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, overload

from rlinf.base import timeline
from rlinf.base.timeline import Span
from rlinf.cluster.errors import WorkerError, WorkerRefused
from rlinf.cluster.failure import Failure


@dataclass(frozen=True)
class Resources:
    """The resources that each worker of a group takes."""

    cpus: float = 0.5
    """Share of a core in the scheduler's accounting; it limits nothing at run time (threads do)."""
    gpus: float = 0.0
    """GPUs of a worker. Ray shows the worker only its own ones, through ``CUDA_VISIBLE_DEVICES``."""
    bundle: str | None = None
    """Groups that name the same bundle share its GPUs: rank i of each runs on the same GPU as rank i of the others."""
    bundle_gpus: int = 1
    """GPUs on one node that are reserved together for the groups of a bundle, as many as their largest rank has."""
    spread: bool = False
    """Ranks on as many nodes as there are (env workers); otherwise on as few as hold them (collectives)."""

    def __post_init__(self) -> None:
        if self.cpus < 0 or self.gpus < 0:
            raise ValueError(f"resources cannot be negative: cpus={self.cpus}, gpus={self.gpus}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus={self.gpus}: more than one GPU must be a whole number")
        if self.bundle is not None and self.gpus > self.bundle_gpus:
            raise ValueError(f"gpus={self.gpus:g} of a rank do not fit bundle_gpus={self.bundle_gpus}")


@dataclass(frozen=True)
class GroupSize:
    """How many workers a group has, and what each takes."""

    n: int
    resources: Resources


@dataclass(frozen=True)
class RankInfo:
    """The position of a worker in its group and on its machine, fixed when it is built."""

    rank: int
    size: int
    group: str
    threads: int
    """Torch threads of the worker, already in force."""
    master_address: str | None = None
    """Address of rank 0's node; set for groups that were spawned with ``rendezvous=True``."""
    master_port: int | None = None
    """A port that was free on rank 0's node a moment ago."""
    local_rank: int = 0
    """Position among the ranks of this group on the same node."""
    node: str = "local"
    """Address of the node."""


Build = Callable[[RankInfo], object]
"""Makes the worker's object, in the worker; pickled by value where it is a closure or a lambda.

Where the object has a method ``close``, it is called when the group is closed in good order."""


@dataclass(frozen=True)
class Assembled:
    """An argument of a call that is made in the worker, of parts that may be shared values."""

    make: Callable[..., Any]
    parts: tuple[Any, ...]

    def of(self, real: Callable[[Any], Any]) -> Any:
        """Build the argument from its parts, each replaced by the value that ``real`` gives for it."""
        return self.make(*map(real, self.parts))


class Handle(ABC):
    """One call under way."""

    group: str
    rank: int
    method: str

    @abstractmethod
    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call's value, at most ``timeout`` seconds (None: up to the call's own deadline).

        :raises WorkerError: the worker raised; :class:`WorkerDied`, :class:`WorkerTimeout` likewise.
        """

    @abstractmethod
    def done(self) -> bool:
        """Whether :meth:`result` would return, or raise, at once."""


class Stream(ABC, Iterator[Any]):
    """A generator method under way on one worker: its items as they come. Closing it stops the worker's."""

    group: str
    rank: int
    method: str

    @abstractmethod
    def close(self) -> None:
        """End the stream at the worker's next item. May be called again, and after its end."""


Given = ParamSpec("Given")
Value = TypeVar("Value")


class WorkerGroup(ABC):
    """``size`` workers with the same methods. A context manager: leaving it ends the workers."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    @overload
    def call(
        self, method: Callable[Concatenate[Any, Given], Value], /, *args: Given.args, **options: Given.kwargs
    ) -> list[Value]: ...

    @overload
    def call(
        self, method: str, /, *args: Any, per_rank: Sequence[Sequence[Any]] | None = None, **options: Any
    ) -> list[Any]: ...

    def call(self, method: str | Callable[..., Any], /, *args: Any, **options: Any) -> list[Any]:
        """Run ``method`` on every rank and wait; results are in rank order.

        A method of the workers' class (``LearnerWorker.update``) stands for its name. So arguments and results are
        checked as those of a call in this process are.

        ``per_rank`` holds each rank's positional arguments; without it all ranks get ``args``. ``options`` are the
        method's own keyword arguments, the same for all ranks.
        """
        name = method if isinstance(method, str) else method.__name__
        return self.gather(self.submit(name, *args, **options))

    def call_one(self, rank: int, method: str, /, *args: Any, **options: Any) -> Any:
        """Run ``method`` on one rank and wait."""
        return self.gather([self.submit_one(rank, method, *args, **options)])[0]

    def submit(
        self, method: str, /, *args: Any, per_rank: Sequence[Sequence[Any]] | None = None, **options: Any
    ) -> list[Handle]:
        """Like :meth:`call`, without waiting. Calls of one rank run one after another, in the order of submission."""
        if per_rank is None:
            per_rank = [args] * self.size
        elif args:
            raise TypeError(f"{self.name}.{method}: give positional arguments or per_rank, not both")
        elif len(per_rank) != self.size:
            raise ValueError(f"{self.name}.{method}: per_rank has {len(per_rank)} entries for {self.size} ranks")
        return [self.submit_one(rank, method, *per_rank[rank], **options) for rank in range(self.size)]

    @abstractmethod
    def submit_one(self, rank: int, method: str, /, *args: Any, **options: Any) -> Handle:
        """One call on one rank, without waiting.

        A handle among the arguments stands for its value, which goes from worker to worker past the driver. Like a
        value of :meth:`Cluster.share` it must not be written to.
        """

    @abstractmethod
    def submit_remote(self, rank: int, method: str, /, *args: Any, **options: Any) -> tuple[Handle, Handle]:
        """Like :meth:`submit_one` for a method that returns a pair, whose halves have a handle each.

        A half may be only passed on to other workers, as a handle among their arguments or the parts of an
        :class:`Assembled`. It then stays on the node where it was made until they fetch it. It outlives the worker,
        and is freed when no process has its handle any more. If its node is lost, calls that were to take it fail
        with :class:`ValueLost`.
        """

    @abstractmethod
    def submit_pieces(
        self, rank: int, function: Callable[..., Sequence[Any]], /, *args: Any, count: int
    ) -> tuple[Handle, list[Handle]]:
        """Run ``function(*args)``, which gives ``count`` values, in the process of a worker, in addition to its calls.

        The values have a handle each, as the halves of :meth:`submit_remote` have. A value that a worker made is cut
        up for others without passing the caller. The first handle has no value; it is done when they are there.
        """

    @abstractmethod
    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """Collect the values of this group's handles, in their order. Of several failures the first in time is raised.

        A failure in a group with rendezvous ends the whole group, since its other ranks may wait in a collective for
        ever. Elsewhere the other ranks go on and can be called again.
        """

    @abstractmethod
    def stream(self, rank: int, method: str, /, *args: Any, pairs: bool = False, **options: Any) -> Stream:
        """Start a generator method; each item may take as long as a call.

        ``pairs``: the method yields pairs, and of the second half an item has a handle, as :meth:`submit_remote` gives
        it.
        """

    @abstractmethod
    def nodes(self) -> list[str]:
        """Return the address of each rank's node."""

    @abstractmethod
    def record_spans(self, on: bool) -> list[Span]:
        """Begin to record what runs in the workers, or end it and return the spans.

        Workers that do not respond in time are left out: a timeline never ends a run.
        """

    @abstractmethod
    def restart(self, ranks: Sequence[int], *, counted: bool = True) -> None:
        """End workers and build them again, at most ``max_restarts`` times a rank in ``restart_window_s`` seconds.

        They start at the same time if they have processes. Restarts that are not ``counted`` are for callers with a
        limit of their own.

        :raises WorkerError: when that number is used up, or the group has a rendezvous (spawn such a group again).
        """

    @abstractmethod
    def close(self) -> None:
        """End the workers and give back what they held. May be called again."""

    def check_rank(self, rank: int) -> None:
        """Check that the group has the rank.

        :raises ValueError: when the group has no such rank."""
        if not 0 <= rank < self.size:
            raise ValueError(f"{self.name} has ranks 0 to {self.size - 1}, not {rank}")

    def failure(self, rank: int, method: str, failure: Failure) -> WorkerError:
        """Build the error for a worker that raised, with the same words on every backend."""
        if failure.words is not None:
            refused = WorkerRefused(failure.words, group=self.name, rank=rank, method=method)
            refused.exit_code = failure.exit_code
            return refused
        head = f"{self.name} rank {rank} of {self.size} failed in {method}:"
        return WorkerError(f"{head}\n{failure.traceback.rstrip()}", group=self.name, rank=rank, method=method)

    def no_restart_left(self, rank: int) -> WorkerError:
        """Build the error for a rank that has been restarted as often as ``max_restarts`` allows."""
        budget = "cluster.max_restarts in cluster.restart_window_s"
        message = f"{self.name} rank {rank} of {self.size} has used up its restarts ({budget})"
        return WorkerError(message, group=self.name, rank=rank, method="restart")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Starting:
    """A group whose workers are on their way."""

    def __init__(self, group: WorkerGroup, finish: Callable[[], None]) -> None:
        """``finish`` waits for the workers' objects; if it raises, the group is closed."""
        self._group, self._finish = group, finish

    def ready(self) -> WorkerGroup:
        """Wait until all workers are up; the errors are those of :meth:`Cluster.spawn`."""
        try:
            self._finish()
        except BaseException:
            self._group.close()
            raise
        return self._group


Pending = TypeVar("Pending", bound=Handle | Stream)


class Cluster(ABC):
    """Groups of workers and what they share. A context manager: leaving it, however that happens, ends everything."""

    concurrent: ClassVar[bool] = True
    """Calls run concurrently with the caller; otherwise :meth:`WorkerGroup.submit_one` returns after its call."""
    _groups: Mapping[str, WorkerGroup]
    """Those that were started, by name."""

    def spawn(
        self, name: str, build: Build, *, n: int = 1, resources: Resources | None = None, rendezvous: bool = False
    ) -> WorkerGroup:
        """Start ``n`` workers, each holding ``build(info)``, and wait until all are up.

        ``rendezvous`` gives the ranks an address to meet at (``torch.distributed``) and ties their fates together.

        :raises PlacementError: they do not fit on the machines.
        :raises WorkerTimeout: some were not up after ``start_timeout_s``; the message names them.
        """
        return self.begin(name, build, n=n, resources=resources, rendezvous=rendezvous).ready()

    @abstractmethod
    def begin(
        self, name: str, build: Build, *, n: int = 1, resources: Resources | None = None, rendezvous: bool = False
    ) -> Starting:
        """Like :meth:`spawn`, but returns while the workers' objects are still being made: begin other groups then."""

    @property
    def address(self) -> str:
        """Where workers reach a server of the driver: this machine alone, unless others take part."""
        return "127.0.0.1"

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Store a value once, to be given to any number of calls as a positional or keyword argument.

        Workers read shared tensors without a copy: they must not write to them.
        """

    @abstractmethod
    def wait_any(self, pending: Sequence[Pending], timeout: float | None = None) -> list[Pending]:
        """Wait until at least one is done (a stream: has an item, or is at its end) and return all that are.

        An empty list after ``timeout`` seconds.

        :raises WorkerTimeout: a call among them is past its own deadline.
        """

    def record_spans(self, on: bool) -> list[Span]:
        """Begin to record what runs in this process and in all workers, or end it and return the spans."""
        groups = list(self._groups.values())
        return [*timeline.switch(on), *(span for group in groups for span in group.record_spans(on))]

    @abstractmethod
    def close(self) -> None:
        """End all groups and leave the cluster; a cluster that was started here is stopped. May be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
