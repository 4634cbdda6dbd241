-- Fire due schedules together, except those with a run to replace. If that fails, fire each alone: none blocks others.
-- _dues[k] and _versions[k] are what the caller saw of _ids[k]; if another worker has fired or changed the schedule
-- since, nothing happens. (_tick_ids, _tick_ats) are the computed ticks, _nexts[k] the next one. Returns how many jobs
-- were enqueued, which schedules could not be fired, and why: null if another session has locked them. The function
-- does not wait for locks.
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
as $$
declare
  _replacing uuid[];
  _runs uuid[];
  _many record;
  _singly boolean := false;
  _one record;
begin
  enqueued := 0;
  left_ids := '{}';
  left_why := '{}';
  -- A run that ends locks its job first and then its schedule (to_history, admit). So does this function.
  _replacing := array(
    select s.id from unnest(_ids, _dues) as u (id, due)
    join stepwell.schedule s on s.id = u.id and s.next_tick_at = u.due
    where s.id = any (_ids) and case when s.overlap = 'replace' then stepwell.has_live_run(s.id) else false end
  );
  if cardinality(_replacing) > 0 then
    _runs := stepwell.runs_to_replace(_replacing);
    perform from stepwell.job j where j.id = any (_runs) order by j.id for update skip locked;
  end if;
  begin
    select m.enqueued, m.held into _many
    from stepwell.tick_many(_ids, _versions, _dues, _nexts, _tick_ids, _tick_ats) m;
    enqueued := _many.enqueued;
    left_ids := _many.held;
    left_why := array_fill(null::text, array[cardinality(left_ids)]);
  exception when others then
    _singly := true;
  end;
  if not _singly and cardinality(_replacing) = 0 then
    return;
  end if;
  for _one in
    select u.id, u.version, u.due, u.next, coalesce(t.ats, '{}') as ats
    from unnest(_ids, _versions, _dues, _nexts) as u (id, version, due, next)
    left join (
      select i.id, array_agg(i.at order by i.at) as ats from unnest(_tick_ids, _tick_ats) as i (id, at) group by i.id
    ) t on t.id = u.id
    where _singly or (u.id in (select r.id from unnest(_replacing) as r (id))) is true
    order by u.id
  loop
    begin
      enqueued := enqueued + stepwell.tick_one(_one.id, _one.version, _one.due, _one.next, _one.ats);
    exception
      when lock_not_available then
        left_ids := left_ids || _one.id;
        left_why := left_why || null::text;
      when others then
        left_ids := left_ids || _one.id;
        left_why := left_why || sqlerrm;
    end;
  end loop;
end
$$;
