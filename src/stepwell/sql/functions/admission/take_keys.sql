-- Take the unique keys of jobs that are about to be inserted. Returns null if each job has its key, else an element for
-- each job: the job that has its key in its place; null if it has its own key, or needs none. Of jobs with the same
-- key, the first takes it. _admissions is as in stepwell.line_up; an element whose id is null is left out. The period
-- of a key begins at _since[k], by default now.
-- A job that is retried takes back a key that it has kept. The id of zeros holds keys for the jobs of later calls in
-- the same transaction (stepwell.hold_keys).
--
-- The primary key decides. An insert waits for a transaction that has inserted or is changing the same key, for as long
-- as it is open. A key that is taken is only read, so nobody waits for a transaction that found it taken.
-- No deadlock: first all new keys are inserted, in their order, then keys whose period is over are taken over, in their
-- order. If another session was faster with one of them, the function gives back all that it has and begins anew.
create or replace function stepwell.take_keys(
  _now timestamptz,
  _ids uuid[],
  _admissions json[],
  _since timestamptz[] default null
) returns uuid[]
language plpgsql volatile
as $$
declare
  _rules json[];
  _keys text[];
  _needed integer;
  _wanted record;
  _taken record;
  _free text[];
  _round integer := 0;
begin
  -- offset 0: each admission is parsed once.
  select array_agg(u.rule), array_agg(u.key), count(u.key) into _rules, _keys, _needed
  from (
    select r.rule, case when r.id is not null then r.rule ->> 'key' end as key
    from (
      select a.id, a.admission -> 'unique' as rule from unnest(_ids, _admissions) as a (id, admission) offset 0
    ) r
    offset 0
  ) u;
  if _needed = 0 then
    return null;
  end if;
  select array_agg(w.key) as keys, array_agg(w.id) as ids, array_agg(w.live) as lives,
    array_agg(w.until_start) as until_starts, array_agg(w.expires_at) as expire_ats
  into _wanted
  from (
    select distinct on (u.key collate "C") u.key, u.id, (u.rule ->> 'conflict' = 'throttle') is not true as live,
      coalesce((u.rule ->> 'until_start')::boolean, false) as until_start,
      coalesce(u.since, _now) + (u.rule ->> 'period')::double precision * interval '1 second' as expires_at
    from unnest(_keys, _ids, _rules, _since) with ordinality as u (key, id, rule, since, n)
    where u.key is not null
    order by u.key collate "C", u.n
  ) w;
  <<rounds>>
  loop
    -- One read tells who has each key. A job that ends after it had the key at the time.
    select array_agg(k.key) as keys, array_agg(k.job_id) as ids,
      array_agg(k.key) filter (
        where not k.live and k.expires_at <= _now or k.job_id = '00000000-0000-0000-0000-000000000000'
          or k.job_id = w.id
      ) as over
    into _taken
    from stepwell.unique_key k
    join unnest(_wanted.keys, _wanted.ids) as w (key, id) on w.key = k.key
    where k.key = any (_wanted.keys);
    exit rounds when cardinality(_taken.keys) = cardinality(_wanted.keys) and _taken.over is null;
    begin
      if _taken.keys is null then
        insert into stepwell.unique_key (key, job_id, live, until_start, expires_at)
        select w.key, w.id, w.live, w.until_start, w.expires_at
        from unnest(_wanted.keys, _wanted.ids, _wanted.lives, _wanted.until_starts, _wanted.expire_ats)
          as w (key, id, live, until_start, expires_at);
        if _needed = cardinality(_wanted.keys) then
          return null;
        end if;
      elsif cardinality(_taken.keys) < cardinality(_wanted.keys) then
        insert into stepwell.unique_key (key, job_id, live, until_start, expires_at)
        select w.key, w.id, w.live, w.until_start, w.expires_at
        from unnest(_wanted.keys, _wanted.ids, _wanted.lives, _wanted.until_starts, _wanted.expire_ats)
          as w (key, id, live, until_start, expires_at)
        where (w.key in (select t.key from unnest(_taken.keys) as t (key))) is not true
        order by w.key collate "C";
      end if;
      if _taken.over is not null then
        perform from stepwell.unique_key k where k.key = any (_taken.over) order by k.key for update;
        with taken_over as (
          update stepwell.unique_key k
          set job_id = w.id, live = w.live, until_start = w.until_start, expires_at = w.expires_at
          from unnest(_wanted.keys, _wanted.ids, _wanted.lives, _wanted.until_starts, _wanted.expire_ats)
            as w (key, id, live, until_start, expires_at)
          where k.key = any (_taken.over) and k.key = w.key
            and (
              not k.live and k.expires_at <= _now or k.job_id = '00000000-0000-0000-0000-000000000000'
              or k.job_id = w.id
            )
          returning k.key
        )
        select array_agg(t.key) into _free from taken_over t;
        if cardinality(_free) is distinct from cardinality(_taken.over) then
          raise exception using errcode = 'unique_violation';
        end if;
      end if;
      exit rounds;
    exception when unique_violation then
      _round := _round + 1;
      if _round > 100 or current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'serialization_failure',
          message = 'stepwell: other transactions have taken some of the unique keys meanwhile: try again';
      end if;
    end;
  end loop;
  return (
    -- Who had a key before has it still, unless it was taken over.
    select case when count(h.id) > 0 then array_agg(h.id order by h.n) end
    from (
      select u.n,
        nullif(case when o.key is null then coalesce(t.id, w.id) else w.id end, u.id) as id
      from unnest(_keys, _ids) with ordinality as u (key, id, n)
      left join unnest(_wanted.keys, _wanted.ids) as w (key, id) on w.key = u.key
      left join unnest(_taken.keys, _taken.ids) as t (key, id) on t.key = u.key
      left join unnest(_taken.over) as o (key) on o.key = u.key
    ) h
  );
end
$$;
