-- Which of these running jobs another session has locked, and which session that is: a worker asks when it cannot write an
-- outcome or a step of theirs, and waits for nothing here. _with_family: the worker needs the job for itself, with its parent
-- and all that descends from it, as stepwell.finish and stepwell.fail do; else it needs the job alone, unless that was asked to
-- stop. A job has a row for each holder, with nulls if the holder cannot be told. since: when the holder's transaction began,
-- null if the owner of the schema may not see that. A prepared transaction has no pid.
create or replace function stepwell.lock_holders(_ids uuid[], _with_family boolean default true)
returns table (id uuid, pid integer, role text, application text, since timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
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
  -- A row lock is known by the row's xmax alone: a transaction, or a number that stands for several.
  for _xmax in select distinct x.xmax::text from unnest(_xmaxes) as x (xmax) loop
    if exists (select from pg_locks l where l.locktype = 'transactionid' and l.granted and l.transactionid = _xmax) then
      _held := _held || _xmax;
      _holders := _holders || _xmax;
    else
      begin
        _several := array(select m.xid from pg_get_multixact_members(_xmax) m);
        _held := _held || array_fill(_xmax, array[cardinality(_several)]);
        _holders := _holders || _several;
      exception when others then
        null; -- no such number, or it is no longer known: the lock is gone by now
      end;
    end if;
  end loop;
  return query
  with holding as materialized (
    select distinct h.xmax::text as xmax, l.pid, coalesce(a.usename, p.owner)::text as role,
      coalesce(a.application_name, 'prepared transaction ' || p.gid) as application,
      coalesce(a.xact_start, p.prepared) as since
    from unnest(_held, _holders) as h (xmax, holder)
    join pg_locks l on l.locktype = 'transactionid' and l.granted and l.transactionid = h.holder
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_prepared_xacts p on p.transaction = h.holder
    where l.pid is distinct from pg_backend_pid()
  )
  select distinct b.asked, h.pid, h.role, h.application, h.since
  from unnest(_blocked_asked, _xmaxes) as b (asked, xmax)
  left join holding h on h.xmax = b.xmax::text;
end
$$;
