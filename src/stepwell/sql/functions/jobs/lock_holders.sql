-- Which of these running jobs another session has locked, and which session. A worker asks when it cannot write an
-- outcome or a step; this function does not wait. _with_family: the worker needs the job with its parent and
-- descendants, as stepwell.finish and stepwell.fail do; otherwise it needs the job alone, unless it is being cancelled.
-- A job has one row for each holder, with nulls if the holder is unknown. since is the start of the holder's
-- transaction, null if the owner of the schema may not see it. A prepared transaction has no pid.
create or replace function stepwell.lock_holders(_ids uuid[], _with_family boolean default true)
returns table (
  id uuid,
  task text,
  queue text,
  attempt integer,
  pid integer,
  role text,
  application text,
  since timestamptz
)
language plpgsql volatile security definer
as $$
declare
  _asked uuid[];
  _members uuid[];
  _free uuid[];
  _blocked uuid[];
  _blocked_asked uuid[];
  _xmaxes xid[];
  _xmax xid;
  _holders xid[] := '{}';
  _held xid[] := '{}';
  _several xid[];
begin
  with recursive related as (
    select j.id as asked, j.id as member, _with_family or j.cancelling as whole
    from stepwell.job j where j.id = any (_ids)
    union
    select r.asked, c.id, true from related r join stepwell.job c on c.parent_id = r.member where r.whole
  )
  select array_agg(m.asked), array_agg(m.member) into _asked, _members
  from (
    select r.asked, r.member from related r
    union
    select j.id, j.parent_id from stepwell.job j
    where j.id = any (_ids) and j.parent_id is not null and (_with_family or j.cancelling)
  ) m;
  if _with_family then
    _free := array(
      select f.id from (
        select j.id from stepwell.job j where j.id = any (_members) order by j.id for update skip locked
      ) f
    );
  else
    _free := array(
      select f.id from (
        select j.id from stepwell.job j where j.id = any (_members) order by j.id for no key update skip locked
      ) f
    );
  end if;
  select array_agg(u.asked), array_agg(u.member), array_agg(j.xmax)
  into _blocked_asked, _blocked, _xmaxes
  from unnest(_asked, _members) as u (asked, member)
  join stepwell.job j on j.id = u.member
  where u.member <> all (_free);
  if _blocked is null then
    return;
  end if;
  -- A row lock is visible only in the row's xmax: a transaction id or a multixact id.
  for _xmax in select distinct x.xmax::text from unnest(_xmaxes) as x (xmax) loop
    _several := array[_xmax];
    if not exists (
      select from pg_locks l where l.locktype = 'transactionid' and l.granted and l.transactionid = _xmax
    ) then
      begin
        _several := _xmax || array(select m.xid from pg_get_multixact_members(_xmax) m);
      exception when others then
        null; -- not a multixact
      end;
    end if;
    _held := _held || array_fill(_xmax, array[cardinality(_several)]);
    _holders := _holders || _several;
  end loop;
  return query
  with locked as materialized (
    select l.locktype, l.pid, l.transactionid as xid, l.relation, l.mode
    from pg_locks l
    where l.granted and l.pid is distinct from pg_backend_pid() and (
      l.locktype = 'transactionid' or l.locktype = 'relation' and l.relation = 'stepwell.job'::regclass
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
    )
  ), holding as materialized (
    select h.xmax::text as xmax, l.pid, l.xid
    from unnest(_held, _holders) as h (xmax, holder)
    join locked l on l.locktype = 'transactionid' and l.xid = h.holder
    union
    -- A released savepoint, or a PL/pgSQL block that catches errors, leaves its subtransaction id in the row, and
    -- nothing maps it to its transaction. Then the holder is an older transaction that has locked rows of this table
    -- and has lasted longer than a moment.
    select h.xmax::text, l.pid, l.xid
    from unnest(_held, _holders) as h (xmax, holder)
    join locked l on l.locktype = 'transactionid' and age(l.xid) > age(h.holder)
    join locked r on r.locktype = 'relation' and r.pid = l.pid and r.mode in ('RowShareLock', 'RowExclusiveLock')
    left join pg_stat_activity a on a.pid = l.pid
    where not exists (select from locked k where k.locktype = 'transactionid' and k.xid = h.holder)
      and (a.xact_start is null or a.xact_start < clock_timestamp() - interval '100 ms')
  ), named as (
    select h.xmax, h.pid, coalesce(a.usename, p.owner)::text as role,
      coalesce(a.application_name, 'prepared transaction ' || p.gid) as application,
      coalesce(a.xact_start, p.prepared) as since
    from holding h
    left join pg_stat_activity a on a.pid = h.pid
    left join pg_prepared_xacts p on h.pid is null and p.transaction = h.xid
  )
  select distinct j.id, j.task, j.queue, j.attempt::integer, n.pid, n.role, n.application, n.since
  from unnest(_blocked_asked, _xmaxes) as b (asked, xmax)
  join stepwell.job j on j.id = b.asked
  left join named n on n.xmax = b.xmax::text;
end
$$;
