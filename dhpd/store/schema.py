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

# Backwards from the newest record: to the one before, or, where that was pruned, to the last that isn't a checkpoint.
_CHAIN = """
with recursive chain (position, handoff, n, seq, prev, anchor, body) as (
    select position, handoff, n, seq, prev, anchor, body from journal where position = :head
    union all
    select j.position, j.handoff, j.n, j.seq, j.prev, j.anchor, j.body
    from chain as c join journal as j
      on j.position = coalesce((select position from journal where position = c.prev), c.anchor)
    where {more}
)
"""
RECORDS_OF = (
    _CHAIN.format(more="c.n > :after + 1")
    + "select position, handoff, body from chain where n > :after order by n limit :limit"
)
CHECKPOINTS_OF = (
    _CHAIN.format(more="c.seq is null or c.seq > :after + 1")
    + "select position, body from chain where seq > :after order by seq limit :limit"
)

RECORDS_AFTER = """
select j.position, j.handoff, j.body, h.kind from journal as j left join handoffs as h on h.id = j.handoff
where j.position > ? order by j.position limit ?
"""
