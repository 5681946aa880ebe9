"""The SQL: tables, and every statement, together.

Owns the schema and its version. The journal is one append-only rowid table without a second index: each row points to its
handoff's row before (`prev`), and to the last one before that isn't a checkpoint (`anchor`), so that a handoff's history
is walked backwards, around checkpoints that were pruned. `handoffs` is written behind: it holds every record up to
`covered`, and some later ones. Of a handoff's checkpoints up to the seq `pruned` none is left, and it is worth looking for more
while that is below `prune_below`. `forgotten` holds the chains that are still to be deleted, from `prev` and `anchor` backwards;
`position` is that of the record that forgot them.
"""

VERSION = 2
APPLICATION_ID = 0x44485031  # "DHP1"

CREATE_JOURNAL = """
create table journal (
    position integer primary key,
    handoff blob not null,
    n integer not null,
    seq integer,
    prev integer not null,
    anchor integer not null,
    body blob not null,
    payload blob
) strict;
"""
CREATE_FACTS = """
create table handoffs (
    number integer primary key,
    id blob not null unique,
    status text not null,
    kind text not null,
    holder text,
    facts blob not null,
    parent blob,
    acked_at_ms integer,
    prune_below integer not null,
    pruned integer not null default 0
) strict;
create index handoffs_by_status on handoffs (status, number);
create index handoffs_by_parent on handoffs (parent) where parent is not null;
create index handoffs_by_ack on handoffs (acked_at_ms, number) where acked_at_ms is not null;
create index handoffs_to_prune on handoffs (number) where pruned < prune_below;
create table forgotten (position integer primary key, prev integer not null, anchor integer not null) strict;
"""
CREATE_REST = """
create table extensions (handoff blob primary key, fence integer not null, until_ms integer not null) strict;
create table meta (name text primary key, value integer not null) strict;
insert into meta values ('covered', 0), ('head', 0), ('purged_fence', 0);
"""
CREATE = CREATE_JOURNAL + CREATE_FACTS + CREATE_REST

INSERT_RECORDS = {
    many: "insert into journal values " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * many)
    for many in (64, 32, 16, 8, 4, 2, 1)
}
"""By the number of rows, the largest first."""

PUT_FACTS = """
insert into handoffs (number, id, status, kind, holder, facts, parent, acked_at_ms, prune_below)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (number) do update set status = excluded.status, holder = excluded.holder, facts = excluded.facts,
    acked_at_ms = excluded.acked_at_ms, prune_below = excluded.prune_below
"""

FORGET_FACTS = "delete from handoffs where id = ?"
FORGET_CHAIN = "insert into forgotten values (?, ?, ?)"
RAISE_META = "update meta set value = max(value, ?) where name = ?"

# Ended handoffs that retention may be done with: a parent stays as long as any child of it.
ACKED_BEFORE = """
select facts from handoffs as h
where acked_at_ms <= :acked_before_ms and (acked_at_ms, number) > (:after_ms, :after_number)
  and not exists (select 1 from handoffs as child where child.parent = h.id)
order by acked_at_ms, number limit :rows
"""

TO_PRUNE = (
    "select number, facts, pruned from handoffs where pruned < prune_below and number > ? order by number limit ?"
)
SET_PRUNED = "update handoffs set pruned = ? where number = ?"
TO_DELETE = "select position from forgotten where position > ? and position <= ? order by position limit 1"
CHAIN = "select prev, anchor from forgotten where position = ?"
SHORTEN = "update forgotten set prev = ?, anchor = ? where position = ?"
DELETED = "delete from forgotten where position = ?"
DELETE_RECORDS = "delete from journal where position in (select value from json_each(?))"
# A checkpoint may lie in a record of another type as well (`redriven`), which stays. A body begins with its type.
DELETE_CHECKPOINTS = DELETE_RECORDS + """ and substr(body, 1, 22) = cast('{"type":"checkpointed"' as blob)"""

PUT_EXTENSION = "insert or replace into extensions values (?, ?, ?)"
FREE_EXTENSION = "delete from extensions where handoff = ?"
EXTENSIONS = "select handoff, fence, until_ms from extensions"

HEAD = "select max((select coalesce(max(position), 0) from journal), (select value from meta where name = 'head'))"
META = "select value from meta where name = ?"
SET_META = "update meta set value = ? where name = ?"
PUT_META = "insert or replace into meta values (?, ?)"

MARK_BACKUP = "insert or ignore into meta values ('backed_up_ms', ?)"
UNMARK_BACKUP = "delete from meta where name = 'backed_up_ms'"
FENCES_AFTER = "select json_extract(body, '$.fence') from journal where position > ?"

COUNTS = "select status, count(*) from handoffs group by status"
LIVE_FACTS = "select facts from handoffs where status in ('pending', 'running', 'orphaned', 'suspended')"
DEAD_CHILDREN = "select facts from handoffs where status = 'dead' and parent is not null"
ALL_FACTS = "select facts from handoffs"
FACTS_OF = "select facts from handoffs where id = ?"
TAIL = "select position, handoff, prev, anchor, body, payload is not null from journal where position > ? order by position"
PAYLOAD = "select payload from journal where position = ?"

RECORDS_AT = (
    "select position, handoff, body from journal where position in (select value from json_each(?)) order by position"
)

# A slice of a handoff's records, backwards: from each to the one before, or, where that was pruned, to the last that isn't
# a checkpoint; it begins at `prev` and `anchor` in the same way. One row comes of it, since each would cost a turn of the
# GIL: how many there were; the least of `n`, and from that record where the next slice begins; the positions asked for.
_SLICE = """
with recursive chain (position, n, seq, prev, anchor) as (
    select position, n, seq, prev, anchor from journal
    where position = coalesce((select position from journal where position = :prev), :anchor)
    union all
    select j.position, j.n, j.seq, j.prev, j.anchor
    from chain as c join journal as j
      on j.position = coalesce((select position from journal where position = c.prev), c.anchor)
    where c.{number} is null or c.{number} > :after + 1
    limit :rows
)
select count(*), min(n), {number}, prev, anchor, json_group_array(position) filter (where {number} > :after) from chain
"""
RECORDS_SLICE = _SLICE.format(number="n")
CHECKPOINTS_SLICE = _SLICE.format(number="seq")

# As above, for what is to be deleted: `found` holds [number, position, prev, anchor, bytes of payload] of each.
_DELETE_SLICE = """
with recursive chain (position, n, seq, prev, anchor, bytes) as (
    select position, n, seq, prev, anchor, length(payload) from journal
    where position = coalesce((select position from journal where position = :prev), :anchor)
    union all
    select j.position, j.n, j.seq, j.prev, j.anchor, length(j.payload)
    from chain as c join journal as j
      on j.position = coalesce((select position from journal where position = c.prev), c.anchor)
    where c.{number} is null or c.{number} > :after + 1
    limit :rows
)
select count(*), min(n), {number}, prev, anchor,
    json_group_array(json_array({number}, position, prev, anchor, coalesce(bytes, 0)))
        filter (where {number} > :after and {number} <= :up_to) as found
from chain
"""
RECORDS_TO_DELETE = _DELETE_SLICE.format(number="n")
CHECKPOINTS_TO_DELETE = _DELETE_SLICE.format(number="seq")

# So many rows of the table of facts, and of those the ones that are wanted. A label is looked for as it is encoded, which
# finds all that have it and hardly any other.
_SCAN = """
select number, facts from (select number, kind, holder, facts from handoffs where {rows} limit :rows)
where (:kind is null or kind = :kind) and (:holder is null or holder = :holder)
  and (:label is null or instr(facts, :label) > 0)
limit :wanted
"""
_SCAN_END = "select number from handoffs where {rows} limit 1 offset :rows - 1"
# Few begin with the same digits: they are found by the index of ids, which the plus signs leave no other way than.
_BY = {
    "number": "number {beyond} :after order by number {order}",
    "status": "status = :status and number {beyond} :after order by number {order}",
    "prefix": """id between :first_id and :last_id and (:status is null or status = :status) and +number {beyond} :after
        order by +number {order}""",
}


def _scans(beyond: str, order: str) -> dict[str, tuple[str, str]]:
    rows = {by: text.format(beyond=beyond, order=order) for by, text in _BY.items()}
    return {by: (_SCAN.format(rows=text), _SCAN_END.format(rows=text)) for by, text in rows.items()}


SCANS = {False: _scans(">", "asc"), True: _scans("<", "desc")}
"""By whether the newest come first, and by what rows are found: the rows that are wanted, and the last that was looked at."""

RECORDS_AFTER = """
select j.position, j.handoff, j.prev, j.body, h.kind from journal as j left join handoffs as h on h.id = j.handoff
where j.position > ? order by j.position limit ?
"""
