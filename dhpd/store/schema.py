"""The SQL: tables, and every statement, together.

Owns the schema and its version. The journal is one append-only rowid table without a second index: each row points to its
handoff's row before (`prev`), and to the last one before that isn't a checkpoint (`anchor`), so that a handoff's history
is walked backwards, around checkpoints that were pruned. `handoffs` is written behind: it holds every record up to
`covered`, and some later ones.
"""

VERSION = 1
APPLICATION_ID = 0x44485031  # "DHP1"

CREATE = """
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
create table handoffs (
    number integer primary key,
    id blob not null unique,
    status text not null,
    kind text not null,
    holder text,
    facts blob not null
) strict;
create index handoffs_by_status on handoffs (status, number);
create table extensions (handoff blob primary key, fence integer not null, until_ms integer not null) strict;
create table meta (name text primary key, value integer not null) strict;
insert into meta values ('covered', 0), ('head', 0), ('purged_fence', 0);
"""

INSERT_RECORD = "insert into journal values (?, ?, ?, ?, ?, ?, ?, ?)"

PUT_FACTS = """
insert into handoffs values (?, ?, ?, ?, ?, ?)
on conflict (number) do update set status = excluded.status, holder = excluded.holder, facts = excluded.facts
"""

PUT_EXTENSION = "insert or replace into extensions values (?, ?, ?)"
FREE_EXTENSION = "delete from extensions where handoff = ?"
EXTENSIONS = "select handoff, fence, until_ms from extensions"

HEAD = "select max((select coalesce(max(position), 0) from journal), (select value from meta where name = 'head'))"
META = "select value from meta where name = ?"
SET_META = "update meta set value = ? where name = ?"

COUNTS = "select status, count(*) from handoffs group by status"
LIVE_FACTS = "select facts from handoffs where status in ('pending', 'running', 'orphaned', 'suspended')"
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

# So many rows of the table of facts, and of those the ones that are wanted. A label is looked for as it is encoded, which
# finds all that have it and hardly any other.
_SCAN = """
select number, facts from (
    select number, kind, holder, facts from handoffs where number > :after {within} order by number limit :rows
)
where (:kind is null or kind = :kind) and (:holder is null or holder = :holder)
  and (:label is null or instr(facts, :label) > 0)
limit :wanted
"""
_SCAN_END = "select number from handoffs where number > :after {within} order by number limit 1 offset :rows - 1"
_OF_STATUS = "and status = :status"
SCAN, SCAN_END = _SCAN.format(within=""), _SCAN_END.format(within="")
SCAN_STATUS, SCAN_STATUS_END = _SCAN.format(within=_OF_STATUS), _SCAN_END.format(within=_OF_STATUS)

RECORDS_AFTER = """
select j.position, j.handoff, j.body, h.kind from journal as j left join handoffs as h on h.id = j.handoff
where j.position > ? order by j.position limit ?
"""
