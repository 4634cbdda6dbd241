-- Make the partitions that rows kept for so many seconds will need today and in the next two days, where they are
-- missing. Rows that came too early and went to the default partition are moved. While a long transaction is in the way,
-- nothing is made: rows go to the default partition meanwhile. Returns the names of the new ones.
create or replace function stepwell.make_partitions(_keeps double precision[]) returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- A finish that waits for this waits no longer than this; the next round of upkeep tries again.
set lock_timeout = '1s'
set timezone = 'UTC'
-- These would come from the caller's session.
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
  perform stepwell.check_isolation('a partition is made');
  for _parent, _day in
    select p.name, d.day
    from unnest(array['history', 'failure']) as p (name)
    cross join (
      select distinct date_trunc('day', _now + k.keep * interval '1 second') + n * interval '1 day' as day
      from unnest(_keeps) as k (keep) cross join generate_series(0, 2) as n
      where k.keep > 0 and k.keep < 3155760000
    ) d
    -- History first, as in stepwell.fail: two that take both default partitions must not wait for each other.
    order by 1 desc, 2
  loop
    _name := _parent || to_char(_day, '_YYYYMMDD');
    continue when to_regclass('stepwell.' || _name) is not null;
    if not _locked then
      perform stepwell.lock_partitions();
      _locked := true;
      -- Whoever held that lock may have made it.
      continue when to_regclass('stepwell.' || _name) is not null;
    end if;
    -- A row for a day whose partition is missing is routed to the default one, waits for it, and would be refused there once
    -- this has committed. So whoever writes must wait before a row is routed: for the parents, both of them, in the order in
    -- which stepwell.fail takes them, since it would wait for the one and hold the other.
    begin
      perform set_config('lock_timeout', '100ms', true);
      lock table only stepwell.failure, only stepwell.history in share row exclusive mode;
      execute format('lock table stepwell.%I in access exclusive mode', _parent || '_default');
    exception when lock_not_available then
      -- A long transaction has written a row, or reads them. Everybody would queue behind this: the next round tries again.
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
    -- The owner's default privileges may have given rights on it away, such as that to a trigger, which would run as the owner.
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
