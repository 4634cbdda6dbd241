-- Take the unique keys of jobs that are about to be inserted. Returns null if each job has its key, else an element for
-- each job: the job that has its key in its place; null if it has its own key, or needs none. Of jobs with the same
-- key, the first takes it. _admissions is as in stepwell.line_up, an element whose id is null is left out. The period
-- of a key begins at _since[k], by default now.
-- A job that is retried takes back a key that it has kept. The id of zeros holds keys for the jobs of later calls in
-- the same transaction (stepwell.hold_keys).
--
-- The index decides. An insert waits for a transaction that has inserted or is changing the same key, for as long as it
-- is open. A key that is taken is only read, so nobody waits for a transaction that found it taken.
-- No deadlock: first all new keys are inserted, in their order, then keys whose period is over are taken over, in their
-- order. A key that was freed in between needs an insert again. That would be out of order, so the function gives back
-- all that it has and begins anew.
create or replace function stepwell.take_keys(
  _now timestamptz,
  _ids uuid[],
  _admissions json[],
  _since timestamptz[] default null
) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _keys text[];
  _wanted record;
  _inserted text[];
  _others text[];
  _taken record;
  _takes boolean;
  _found integer;
  _round integer := 0;
begin
  select array_agg(u.key order by u.n),
    count(u.key) filter (where u.id is not null) as count
  into _keys, _found
  from (
    select a.n, a.id, a.admission #>> '{unique,key}' as key
    from unnest(_ids, _admissions) with ordinality as a (id, admission, n)
  ) u;
  if _found = 0 then
    return null;
  end if;
  select array_agg(w.key) as keys, array_agg(w.id) as ids, array_agg(w.live) as lives,
    array_agg(w.until_start) as until_starts, array_agg(w.expires_at) as expire_ats
  into _wanted
  from (
    select distinct on (u.key collate "C") u.key, u.id, (a.rule ->> 'conflict' = 'throttle') is not true as live,
      coalesce((a.rule ->> 'until_start')::boolean, false) as until_start,
      coalesce(u.since, _now) + (a.rule ->> 'period')::double precision * interval '1 second' as expires_at
    from unnest(_keys, _ids, _admissions, _since) with ordinality as u (key, id, admission, since, n)
    cross join lateral (select u.admission -> 'unique' as rule) a
    where u.key is not null and u.id is not null
    order by u.key collate "C", u.n
  ) w;
  select null::text[] as keys, null::uuid[] as ids, null::boolean as takes into _taken;
  <<rounds>>
  loop
    begin
      with new as (
        insert into stepwell.unique_key (key, job_id, live, until_start, expires_at)
        select w.key, w.id, w.live, w.until_start, w.expires_at
        from unnest(_wanted.keys, _wanted.ids, _wanted.lives, _wanted.until_starts, _wanted.expire_ats)
          as w (key, id, live, until_start, expires_at)
        on conflict (key) do nothing
        returning key
      )
      select array_agg(n.key) into _inserted from new n;
      if cardinality(_inserted) = cardinality(_wanted.keys) then
        if _found = cardinality(_inserted) then
          return null;
        end if;
        exit rounds;
      end if;
      _others := array(
        select w.key from unnest(_wanted.keys) as w (key) except select i.key from unnest(_inserted) as i (key)
      );
      _takes := true;
      loop
        -- One read tells who has each key. A job that ends after it had the key at the time.
        select array_agg(k.key) as keys, array_agg(k.job_id) as ids,
          bool_or(
            not k.live and k.expires_at <= _now or k.job_id = '00000000-0000-0000-0000-000000000000'
            or k.job_id = w.id
          ) as takes
        into _taken
        from stepwell.unique_key k
        join unnest(_wanted.keys, _wanted.ids) as w (key, id) on w.key = k.key
        where k.key = any (_others);
        exit when not _takes or _taken.takes is not true;
        _takes := false;
        perform from stepwell.unique_key k
        where k.key = any (_others)
          and (
            not k.live and k.expires_at <= _now or k.job_id = '00000000-0000-0000-0000-000000000000'
            or k.job_id in (select w.id from unnest(_wanted.ids) as w (id))
          )
        order by k.key
        for update;
        update stepwell.unique_key k
        set job_id = w.id, live = w.live, until_start = w.until_start, expires_at = w.expires_at
        from unnest(_wanted.keys, _wanted.ids, _wanted.lives, _wanted.until_starts, _wanted.expire_ats)
          as w (key, id, live, until_start, expires_at)
        where k.key = any (_others) and k.key = w.key
          and (
            not k.live and k.expires_at <= _now or k.job_id = '00000000-0000-0000-0000-000000000000'
            or k.job_id = w.id
          );
      end loop;
      if cardinality(_others) > coalesce(cardinality(_taken.keys), 0) then
        raise exception using errcode = 'SW006';
      end if;
      exit rounds;
    exception when sqlstate 'SW006' then
      _round := _round + 1;
      if _round > 100 then
        raise exception using errcode = 'serialization_failure',
          message = 'stepwell: the unique keys of a batch were freed and taken too often meanwhile: try again';
      end if;
    end;
  end loop;
  return (
    -- A key that is not in the list was inserted, by the first job that has it.
    select case when count(h.id) > 0 then array_agg(h.id order by h.n) end
    from (
      select u.n, case when u.id is not null then nullif(coalesce(k.id, w.id), u.id) end as id
      from unnest(_keys, _ids) with ordinality as u (key, id, n)
      left join unnest(_wanted.keys, _wanted.ids) as w (key, id) on w.key = u.key
      left join unnest(_taken.keys, _taken.ids) as k (key, id) on k.key = u.key
    ) h
  );
end
$$;
