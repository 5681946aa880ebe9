"""Sessions: which connections belong together, and which leases hang on them.

Owns the names, whose token's each is, and who is connected. Does not own deadlines (`leases`), nor survives anything: after
a restart only what leases hang on is known of a session until one of its connections says `hello`. Pure: fresh names are
an argument.
"""

from collections.abc import Callable

from dhp_protocol.errors import Forbidden

from .leases import Lease

GRACE_LOCAL_MS = 250
"""Over loopback and unix sockets a closed connection means that the process is gone."""


def disconnect_grace_ms(ttl_ms: int, *, local: bool) -> int:
    """How long a lease outlives its session's last connection."""
    return GRACE_LOCAL_MS if local else ttl_ms // 3 + 500


class Session:
    """One client process, as the daemon sees it. `leases` are those that hang on it.

    `token` is the name of the token whose it is (None: no token is in use); `worker` that in its certificate, once a `hello` has
    told (None: any); `asked_as` are names under which its connections
    asked for approvals before they said `hello`. `away`: it has had connections, and has none; `absences` is how often that came.
    """

    __slots__ = ("absences", "anonymous", "asked_as", "away", "connections", "leases", "name", "token", "worker")

    def __init__(self, name: str, token: str | None) -> None:
        self.name = name
        self.token = token
        self.worker: str | None = None
        self.asked_as: set[str] = set()
        self.anonymous = True  # Until a `hello`: it hears no events.
        self.connections: set[int] = set()
        self.leases: dict[Lease, None] = {}  # A set, in the order in which they came.
        self.away = False
        self.absences = 0


class Sessions:
    def __init__(self, fresh_name: Callable[[], str]) -> None:
        self._fresh_name = fresh_name
        self._by_name: dict[str, Session] = {}
        self._by_connection: dict[int, Session] = {}
        self._remote: set[int] = set()
        self._clients: dict[int, str] = {}
        self._asked_as: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def connections(self) -> int:
        """How many connections are open."""
        return len(self._by_connection)

    def every_connection(self) -> list[int]:
        """The open connections."""
        return list(self._by_connection)

    def open(self, connection: int, *, local: bool = True) -> None:
        """A new connection, from this machine (`local`) or another, is a session of its own until it says `hello`."""
        if not local:
            self._remote.add(connection)
        self._join(connection, self._named(self._fresh_name(), None))

    def is_local(self, connection: int) -> bool:
        """Whether the connection's end would be seen at once."""
        return connection not in self._remote

    def of(self, connection: int) -> Session | None:
        """The connection's session; None once its end has been seen."""
        return self._by_connection.get(connection)

    def named(self, name: str) -> Session | None:
        """The session of that name, if any connection or lease of it is known."""
        return self._by_name.get(name)

    def hello(
        self, connection: int, name: str | None, token: str | None = None, worker: str | None = None
    ) -> tuple[Session, Session | None]:
        """The connection joins the session `name` (None: a fresh one), which is `token`'s, and the certificate's of `worker`.

        What it claimed without a `hello` comes along. Gives the session, and one that it has left, if that has no other
        connection: its leases are in their grace from now on. Raises `Forbidden` where the session is another token's, or
        another certificate's.
        """
        known = None if name is None else self._by_name.get(name)
        if known is not None:
            is_same_worker = known.worker == worker or None in (known.worker, worker)
            if known.token != token or not is_same_worker:
                whose = "token" if is_same_worker else "certificate"
                raise Forbidden(f"That session is another {whose}'s: leave the session out, or name another one.")
        old = self._by_connection[connection]
        session = self._named(self._fresh_name() if name is None else name, token)
        left = None
        if session is not old:
            old.connections.discard(connection)
            if old.anonymous and old.token == token:
                if old.name in self._asked_as.get(connection, ()):
                    session.asked_as.add(old.name)
                for lease in old.leases:
                    lease.session = session.name
                session.leases.update(old.leases)
                old.leases.clear()
            if not old.connections:
                left = old if old.leases else None
                self._part(old)
            self._join(connection, session)
        session.anonymous = False
        session.worker = worker
        return session, left

    def close(self, connection: int) -> tuple[Session, bool] | None:
        """The connection's end; gives its session, and whether that was its last connection. None if seen before."""
        session = self._by_connection.pop(connection, None)
        if session is None:
            return None
        self._remote.discard(connection)
        self._clients.pop(connection, None)
        self._asked_as.pop(connection, None)
        session.connections.discard(connection)
        if not session.connections:
            self._part(session)
        return session, not session.connections

    def introduce(self, connection: int, client: str | None) -> None:
        """The connection says what it is, for people."""
        if client is not None:
            self._clients[connection] = client

    def client_of(self, connection: int) -> str | None:
        """What the connection says it is."""
        return self._clients.get(connection)

    def asks(self, connection: int) -> None:
        """The connection asks for an approval: it is known for that, whatever session it joins later."""
        session = self._by_connection.get(connection)
        if session is not None:
            self._asked_as.setdefault(connection, set()).add(session.name)

    def asked_as(self, connection: int) -> frozenset[str]:
        """Names of earlier sessions under which the connection, or its session, has asked for approvals."""
        session = self._by_connection.get(connection)
        of_session = () if session is None else session.asked_as
        return frozenset((*of_session, *self._asked_as.get(connection, ())))

    def attach(self, lease: Lease) -> None:
        """The lease hangs on its session from now on."""
        if not lease.detached:
            self._named(lease.session, lease.token).leases[lease] = None

    def adopt(self, lease: Lease, connection: int) -> bool:
        """The lease hangs on the connection's session from now on, if its own has no connection left; tells whether."""
        own = self._by_name.get(lease.session)
        if lease.detached or (own is not None and own.connections):
            return False
        self.detach(lease)
        lease.session = self._by_connection[connection].name
        self.attach(lease)
        return True

    def detach(self, lease: Lease) -> None:
        """The lease is gone."""
        session = self._by_name.get(lease.session)
        if session is not None:
            session.leases.pop(lease, None)
            self._forget_if_empty(session)

    def _part(self, session: Session) -> None:
        session.away = True
        session.absences += 1
        self._forget_if_empty(session)

    def _forget_if_empty(self, session: Session) -> None:
        if not session.connections and not session.leases:
            del self._by_name[session.name]

    def _named(self, name: str, token: str | None) -> Session:
        session = self._by_name.get(name)
        if session is None:
            session = self._by_name[name] = Session(name, token)
        return session

    def _join(self, connection: int, session: Session) -> None:
        session.connections.add(connection)
        self._by_connection[connection] = session
