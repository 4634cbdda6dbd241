-- Create the missing partitions that rows kept for _keeps seconds, or for as long as a queue keeps them, will need
-- today and on the next two days. Rows that already went to the default partition are moved. If a long transaction is
-- in the way, nothing is created, and rows go to the default partition meanwhile. Returns the names of the new
-- partitions.
create or replace function stepwell.make_partitions(_keeps double precision[]) returns text[]
language plpgsql volatile security definer
-- A finish that waits for this function waits at most this long; the next round of upkeep tries again.
set lock_timeout = '1s'
set timezone = 'UTC'
-- Otherwise the caller's session would set these.
set default_tablespace = ''
set datestyle = 'ISO, YMD'
as $$
declare
  _now timestamptz := stepwell.now();
  _parent text;
  _day timestamptz;
  _locked boolean := false;
  _name text;
  _grantee oid;
  _made text[] := '{}';
begin
  perform stepwell.check_isolation('a new partition');
  for _parent, _day in
    select p.name, d.day
    from unnest(array['history', 'failure']) as p (name)
    cross join (
      select distinct date_trunc('day', _now + k.keep * interval '1 second') + n * interval '1 day' as day
      from (
        select u.keep from unnest(_keeps) as u (keep)
        union
        select u.keep from stepwell.queue_keep s cross join lateral (values (s.keep), (s.keep_failed)) as u (keep)
      ) k
      cross join generate_series(0, 2) as n
      where k.keep > 0 and k.keep < 3155760000
    ) d
    -- History first, as in stepwell.fail, so that two functions that take both default partitions cannot deadlock.
    order by 1 desc, 2
  loop
    _name := _parent || to_char(_day, '_YYYYMMDD');
    continue when to_regclass('stepwell.' || _name) is not null;
    if not _locked then
      perform stepwell.lock_partitions();
      _locked := true;
      -- The previous holder of that lock may have created it.
      continue when to_regclass('stepwell.' || _name) is not null;
    end if;
    -- A row for a day without a partition is routed to the default partition. If it waits there while this function
    -- commits, Postgres refuses it. So writers must wait before rows are routed: on both parents, locked in the order
    -- in which stepwell.fail takes them, because it would hold one and wait for the other.
    begin
      perform set_config('lock_timeout', '100ms', true);
      lock table only stepwell.failure, only stepwell.history in share row exclusive mode;
      execute format('lock table stepwell.%I in access exclusive mode', _parent || '_default');
    exception when lock_not_available then
      -- A long transaction holds the table, and all would queue behind this session: the next round tries again.
      exit;
    end;
    perform set_config('lock_timeout', '1s', true);
    execute format(
      'create table stepwell.%I (like stepwell.%I including all) using %I', _name, _parent,
      (
        select m.amname from pg_class c join pg_am m on m.oid = c.relam
        where c.oid = format('stepwell.%I', _parent || '_default')::regclass
      )
    );
    -- Default privileges may have granted rights on the new table, such as a trigger, which would run as the owner.
    for _grantee in
      select distinct a.grantee from pg_class c cross join lateral aclexplode(c.relacl) a
      where c.oid = format('stepwell.%I', _name)::regclass and a.grantee <> c.relowner
    loop
      execute format('revoke all on stepwell.%I from %s cascade', _name, stepwell.role_name(_grantee));
    end loop;
    execute format(
      'with moved as (delete from stepwell.%I d where d.expires_at >= %L and d.expires_at < %L returning d.*) '
      'insert into stepwell.%I select m.* from moved m',
      _parent || '_default', _day, _day + interval '1 day', _name
    );
    execute format(
      'alter table stepwell.%I attach partition stepwell.%I for values from (%L) to (%L)',
      _parent, _name, _day, _day + interval '1 day'
    );
    _made := _made || _name;
  end loop;
  return _made;
end
$$;
