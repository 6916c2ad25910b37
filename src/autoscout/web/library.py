"""Finds studies, and what extensions show, in a folder or a store, and follows them while they run."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from autoscout.core.actions import Action, Pulse, described
from autoscout.core.clock import Clock, RealClock
from autoscout.core.description import Description
from autoscout.core.errors import AutoScoutError, ConfigError, Fault, StoreError
from autoscout.core.log import logger
from autoscout.core.protocols import Store, StudyRecord
from autoscout.core.state import State, state_of
from autoscout.core.trial import Trial
from autoscout.study.folder import Folder
from autoscout.study.stores import open_store, scheme_of, stores_at, without_password
from autoscout.web.extension import Followed, extensions
from autoscout.web.live import LiveView
from autoscout.web.marks import Marks

POLL_S = 0.7
"""Seconds between two looks at the stores."""
RESCAN_S = 4.0  # between two looks for new stores in a folder
REST = 4.0  # a view is worked out again only when this many times the last one's seconds have passed: a huge study must not use up a core
EAGER = 5_000
"""Trials up to which a study is read before anybody opens it."""

log = logger(__name__)


@dataclass
class StudyEntry:
    """One study that the dashboard knows. Safe for several threads."""

    key: str
    store: Store
    store_url: str
    record: StudyRecord
    folder: Folder | None
    clock: Clock = field(default_factory=RealClock)
    pulse: Pulse = field(default_factory=lambda: Pulse(trials=0))
    version: int = 0  # grows with everything that a page may show

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._trials: list[Trial] = []
        self._actions: list[Action] = self.store.actions(self.record.name)
        self._seen_s = self.record.created_s
        self._shown_state: State | None = None
        self._batch = -1
        self._view: LiveView | None = None
        self._stale = True
        self._opened = False
        self._built_s = self._took_s = 0.0

    def view(self) -> LiveView:
        """What is shown of it now: the newest that was worked out; the first caller waits for it."""
        self._opened = True
        if self._view is None:
            self._build()
        assert self._view is not None
        return self._view

    @property
    def state(self) -> State:
        """How it stands now."""
        return state_of(self._actions, self.pulse, self.clock.now_s(), self._seen_s)

    @property
    def description(self) -> Description:
        """What people say of it."""
        return described(self._actions)

    @property
    def title(self) -> str:
        """What people call it."""
        return self.description.title or self.record.name

    @property
    def url(self) -> str:
        """Address of its page."""
        return f"/studies/{self.key}"

    @property
    def loaded(self) -> LiveView | None:
        """What is shown of it, where somebody has worked it out already."""
        return self._view

    @property
    def steerable(self) -> bool:
        """Whether its store keeps actions."""
        return self.store.takes_actions

    def act(self, action: Action) -> Action:
        """Ask something of the study.

        Raises:
            StoreError: its store keeps no actions, or cannot be written.
        """
        if not self.store.takes_actions:
            raise StoreError(Fault(where=self.store_url, rule="this store keeps no actions"))
        stored = self.store.act(self.record.name, action)
        self.notice(self.record, self.pulse, changed=True)
        self.follow(at_once=True)
        return stored

    def notice(self, record: StudyRecord, pulse: Pulse, *, changed: bool = False) -> None:
        """Take in what the store says of it; cheap."""
        if changed or pulse.actions != self.pulse.actions:
            self._actions = self.store.actions(self.record.name)
        if changed or pulse != self.pulse or record != self.record:
            self._seen_s = max(self._seen_s, self.clock.now_s() if self._shown_state else 0.0)
            self.record, self.pulse, self._stale = record, pulse, True
        if self.state is not self._shown_state:  # also when a process died, which leaves no word in the store
            self._shown_state, self._stale = self.state, True
            self.version += 1

    def follow(self, *, at_once: bool = False) -> None:
        """Work out what is shown anew, if something has changed and it is time."""
        has_reader = self._opened or self.pulse.trials <= EAGER
        rested = at_once or self._view is None or self.clock.span_s() > self._built_s + REST * self._took_s
        if self._stale and has_reader and rested:
            self._build()

    def _build(self) -> None:
        with self._lock:
            if self._view is not None and not self._stale:
                return
            begun_s, self._stale = self.clock.span_s(), False
            for batch in self.store.batches(self.record.name, self._batch):
                self._trials += batch
                self._batch = batch[-1].batch
            if self._trials:
                self._seen_s = max(self._seen_s, self._trials[-1].finished_s)
            self._view = LiveView(
                record=self.record,
                trials=tuple(self._trials),
                actions=tuple(self._actions),
                pulse=self.pulse,
                url=self.url,
                folder=self.folder,
            )
            self._view.prepare()
            self._built_s = self.clock.span_s()
            self._took_s = self._built_s - begun_s
            self.version += 1


class Library:
    """All studies below a folder or in a store.

    Args:
        target: A result folder, a folder of them, a SQLite file, or the URL of a store.
        clock: For the pauses between two looks.

    Raises:
        ConfigError: there is no such folder or store.
    """

    def __init__(self, target: str, clock: Clock | None = None) -> None:
        self.target = target
        self.clock = clock or RealClock()
        self._stores: dict[str, Store] = {}
        self._entries: dict[str, StudyEntry] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked_s = -RESCAN_S
        self._unread: tuple[str, ...] = ()  # what is wrong with the stores, as of the last look for new ones
        self._marks = Marks(self.clock)
        self.extensions = extensions(target, self.clock)
        self.version = 0
        self.problems: tuple[str, ...] = ()
        if not scheme_of(target) and not Path(target).exists():
            rule, fix = "there is no such folder or file", "Give a result folder, a folder of them, or a store"
            raise ConfigError(Fault(where="dashboard", value=target, rule=rule, fix=fix))
        self.look()

    @property
    def title(self) -> str:
        """Where the studies are, for people; without a password."""
        return without_password(self.target)

    def entries(self) -> list[StudyEntry]:
        """All studies, the newest first."""
        with self._lock:
            entries = list(self._entries.values())
        return sorted(entries, key=lambda entry: -entry.record.created_s)

    def entry(self, key: str) -> StudyEntry | None:
        return self._entries.get(key)

    def all_followed(self) -> list[Followed]:
        """Studies, and the entries of extensions."""
        return [*self.entries(), *(entry for extension in self.extensions for entry in extension.entries())]

    def followed(self, key: str) -> Followed | None:
        """The study or entry of an extension with a key."""
        return next((entry for entry in self.all_followed() if entry.key == key), None)

    def start(self) -> None:
        """Follow the studies on a thread until `close`."""
        self._thread = threading.Thread(target=self._follow, name="dashboard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following and let the stores go."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        for store in self._stores.values():
            store.close()

    def look(self) -> None:
        """Take in which studies there are, and how far each study is."""
        problems: list[str] = []
        if self.clock.span_s() - self._looked_s >= RESCAN_S:
            self._looked_s = self.clock.span_s()
            self._unread = tuple(self._scan())
        # Their claims may end, and their processes die, without a word in the store.
        busy = {entry.store_url for entry in self.entries() if entry.state is State.RUNNING}
        for url, store in list(self._stores.items()):
            with _noted(problems), self._marks.looking(url) as new:
                if new or url in busy:
                    self._take_in(url, store)
        self.problems = (*self._unread, *problems)

    def _scan(self) -> list[str]:
        """Open the stores that are new; returns what is wrong with those that cannot be opened."""
        problems: list[str] = []
        urls = dict.fromkeys(_store_urls(self.target))
        for url in urls:
            with _noted(problems):
                if url not in self._stores and not any(extension.is_own(url) for extension in self.extensions):
                    self._stores[url] = open_store(url, create=False)
        for store in self._stores.values():
            with _noted(problems):
                problems += map(str, store.damage().values())
        for extension in self.extensions:
            for url in dict.fromkeys([*urls, *extension.stores()]):
                with _noted(problems):
                    extension.look(url)
        return list(dict.fromkeys(problems))

    def _take_in(self, url: str, store: Store) -> None:
        pulses = store.pulses()
        before = {key: entry.pulse for key, entry in self._entries.items()}
        for record in store.studies():
            key = hashlib.sha256(f"{url}\0{record.name}".encode()).hexdigest()[:12]
            entry = self._entries.get(key)
            if entry is None:
                entry = StudyEntry(
                    key=key, store=store, store_url=url, record=record, folder=_folder_of(self.target, url, record.name), clock=self.clock
                )
                with self._lock:
                    self._entries[key] = entry
            entry.notice(record, pulses.get(record.name, Pulse(trials=-1)), changed=record.name not in pulses)
            self.version += before.get(key) != entry.pulse

    def _follow(self) -> None:
        while not self._ending.wait(POLL_S):
            problems: list[str] = []
            try:
                self.look()
                for entry in self.all_followed():
                    with _noted(problems):
                        entry.follow()
                self.problems = tuple(dict.fromkeys([*self.problems, *problems]))
            except Exception:  # a page that is out of date is better than one that never changes again
                log.exception("a study could not be followed")


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Keep what a broken store says for the page, and continue with the others."""
    try:
        yield
    except AutoScoutError as error:
        problems.append(str(error))


def _store_urls(target: str) -> Iterator[str]:
    """The stores at a target; also those that result folders name in their campaigns."""
    yield from stores_at(target)
    for folder in _folders(target):
        if not folder.store.exists():
            with suppress(AutoScoutError):
                url = folder.spec().get("store")
                if isinstance(url, str) and url:
                    yield url


def _folders(target: str) -> list[Folder]:
    path = Path(target)
    if scheme_of(target) or not path.is_dir():
        return []
    return [Folder(home) for home in (path, *sorted(path.iterdir())) if home.is_dir() and (home / "campaign.yaml").is_file()]


def _folder_of(target: str, url: str, study: str) -> Folder | None:
    """The result folder of a study, where its logs and files are; None where it is not below the target."""
    near = [] if scheme_of(url) else [Folder(Path(url).parent)]
    for folder in [*near, *_folders(target)]:
        with suppress(AutoScoutError):
            if folder.campaign.is_file() and folder.spec().get("name") == study:
                return folder
    return None


__all__ = ["Library", "StudyEntry"]
