-- Fire schedules that are due, each by itself: one that cannot be fired now does not hold up the others.
-- _dues[k] and _versions[k] say what the caller saw of _ids[k]; if somebody else has fired or changed it since, nothing is
-- done. (_tick_ids, _tick_ats) are the ticks that were reckoned, _nexts[k] the one to come. Returns how many jobs were
-- enqueued, and which schedules could not be fired, and why: null if somebody holds them. Nobody is waited for.
create or replace function stepwell.tick(
  _ids uuid[],
  _versions integer[],
  _dues timestamptz[],
  _nexts timestamptz[],
  _tick_ids uuid[],
  _tick_ats timestamptz[],
  out enqueued integer,
  out left_ids uuid[],
  out left_why text[]
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
  _replacing uuid[];
  _runs uuid[];
  _k integer;
begin
  enqueued := 0;
  left_ids := '{}';
  left_why := '{}';
  -- Runs that end lock their jobs first and then their schedules, many at a time (finish, admit): so does this, or they
  -- would wait for each other.
  _replacing := array(
    select s.id from unnest(_ids, _dues) as u (id, due)
    join stepwell.schedule s on s.id = u.id and s.next_tick_at = u.due
    where s.overlap = 'replace'
  );
  if cardinality(_replacing) > 0 then
    _runs := stepwell.runs_to_replace(_replacing);
    perform from stepwell.job j where j.id = any (_runs) order by j.id for update skip locked;
  end if;
  for _k in select u.k from unnest(_ids) with ordinality as u (id, k) order by u.id loop
    begin
      enqueued := enqueued + stepwell.tick_one(
        _ids[_k], _versions[_k], _dues[_k], _nexts[_k],
        array(select t.at from unnest(_tick_ids, _tick_ats) as t (id, at) where t.id = _ids[_k] order by t.at)
      );
    exception
      when lock_not_available then
        left_ids := left_ids || _ids[_k];
        left_why := left_why || null::text;
      when others then
        left_ids := left_ids || _ids[_k];
        left_why := left_why || sqlerrm;
    end;
  end loop;
end
$$;
