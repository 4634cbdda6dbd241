-- Admit the next jobs in the lines of these keys, as many as their limits and rates have room for: they become ready,
-- with a permit for each limit and rate. Returns how many were admitted, and in how many seconds a rate has room for
-- more.
-- The lock of a key is one of 256 rows, locked in order until commit, so that two sessions do not count the same room
-- twice. (Any role could hold an advisory lock.) A session that has to wait for long leaves the keys to a worker
-- (stepwell_blocked).
-- A job with several rules needs room in each. If one has none, the job moves to the line of that key.
create or replace function stepwell.admit_keys(
  _keys text[],
  out admitted integer,
  out next_in double precision
)
language plpgsql volatile security definer
set lock_timeout = '100ms'
as $$
declare
  _most_keys constant integer := 500;
  _now timestamptz := stepwell.now();
  _locked text[];
  _key text;
  _first record;
  _line record;
  _room record;
  _rule record;
  _full text;
  _least integer;
  _again double precision;
  _plain text[];
  _other text[];
  _places stepwell.place[];
  _moved text[] := '{}';
  _got integer;
begin
  admitted := 0;
  _keys := array(select distinct k.key from unnest(_keys) as k (key) where k.key is not null order by k.key);
  if cardinality(_keys) > _most_keys then
    perform stepwell.notify_blocked(_keys[_most_keys + 1 :]);
    _keys := _keys[: _most_keys];
  end if;
  if cardinality(_keys) = 0 then
    return;
  end if;
  -- Most lines are of jobs with one limit and no rate. They are admitted together, the others key by key.
  select array_agg(k.key) filter (where f.one_limit), array_agg(k.key) filter (where not f.one_limit)
  into _plain, _other
  from unnest(_keys) as k (key)
  cross join lateral (
    select stepwell.has_one_limit(j.admission) as one_limit from stepwell.job j
    where j.blocked_by = k.key
    order by j.blocked_by, j.rank, j.run_at, j.id limit 1
  ) f;
  -- The first jobs in line may need other keys, too: their locks are taken with the rest, in order.
  _locked := _keys || array(
    select distinct r.rule ->> 'key'
    from unnest(_other) as k (key)
    cross join lateral (
      select j.admission from stepwell.job j where j.blocked_by = k.key order by j.blocked_by, j.rank, j.run_at, j.id
      limit 20
    ) j
    cross join lateral (
      select json_array_elements(j.admission -> 'limits') as rule
      union all
      select json_array_elements(j.admission -> 'rates')
    ) r
  );
  begin
    perform from stepwell.key_lock l
    where l.stripe = any (array(select hashtext(k.key) & 255 from unnest(_locked) as k (key)))
    order by l.stripe
    for no key update;
  exception when lock_not_available or deadlock_detected then
    perform stepwell.notify_blocked(_keys);
    return;
  end;

  if _plain is not null then
    with line as materialized (
      select k.key,
        greatest(
          0,
          coalesce((select s.most from stepwell.key_setting s where s.key = k.key), f.most)
            - (select count(*) from stepwell.permit p where p.key = k.key and not p.rate)
        ) as room
      from unnest(_plain) as k (key)
      cross join lateral (
        select (j.admission #>> '{limits,0,most}')::integer as most from stepwell.job j
        where j.blocked_by = k.key
        order by j.blocked_by, j.rank, j.run_at, j.id limit 1
      ) f
    ), picked as materialized (
      select l.key, c.id, c.hold, c.one_limit
      from line l
      cross join lateral (
        select j.id, coalesce((j.admission #>> '{limits,0,hold}')::boolean, false) as hold,
          stepwell.has_one_limit(j.admission) as one_limit
        from stepwell.job j
        where j.blocked_by = l.key
        order by j.blocked_by, j.rank, j.run_at, j.id
        limit l.room
        for no key update skip locked
      ) c
      where l.room > 0
    ), mixed as materialized (
      select distinct p.key from picked p where not p.one_limit
    ), made as (
      update stepwell.job j
      set state = 'ready', blocked_by = null
      where j.id = any (array(select p.id from picked p where p.key not in (select m.key from mixed m)))
      returning j.queue, j.rank, j.run_at
    ), permits as (
      insert into stepwell.permit (key, job_id, rate, hold)
      select p.key, p.id, false, p.hold from picked p where p.key not in (select m.key from mixed m)
    )
    select coalesce(sum(g.jobs), 0), array_agg(row(g.queue, g.rank, g.run_at)::stepwell.place),
      _other || array(select m.key from mixed m)
    into admitted, _places, _other
    from (select m.queue, m.rank, min(m.run_at) as run_at, count(*) as jobs from made m group by m.queue, m.rank) g;
  end if;
  foreach _key in array coalesce(_other, '{}') loop
    <<line>>
    loop
      select j.admission,
        coalesce(json_array_length(j.admission -> 'limits'), 0)
          + coalesce(json_array_length(j.admission -> 'rates'), 0) = 1 as simple
      into _first
      from stepwell.job j
      where j.blocked_by = _key
      order by j.blocked_by, j.rank, j.run_at, j.id
      limit 1;
      if not found then
        update stepwell.bucket b set next_at = null where b.key = _key and b.next_at is not null;
        exit line;
      end if;
      -- The rules of the first job that are for this key decide how many of the line may follow it.
      _least := null;
      _again := null;
      for _rule in
        select r.rule, r.rate
        from (
          select json_array_elements(_first.admission -> 'limits') as rule, false as rate
          union all
          select json_array_elements(_first.admission -> 'rates'), true
        ) r
        where r.rule ->> 'key' = _key
      loop
        _room := stepwell.room_of(_rule.rule, _rule.rate, _now);
        if _rule.rate then
          _again := least(_again, _room.next_in);
        end if;
        _least := least(_least, _room.room);
      end loop;
      if coalesce(_least, 1) <= 0 then
        if _again is not null then
          next_in := least(next_in, _again);
          insert into stepwell.bucket as b (key, used, used_at, next_at)
          values (_key, 0, _now, _now + _again * interval '1 second')
          on conflict (key) do update set next_at = excluded.next_at;
        end if;
        exit line;
      end if;
      select array_agg(l.id) as ids, bool_and(l.simple) as simple into _line
      from (
        select j.id,
          coalesce(json_array_length(j.admission -> 'limits'), 0)
            + coalesce(json_array_length(j.admission -> 'rates'), 0) = 1 as simple
        from stepwell.job j
        where j.blocked_by = _key
        order by j.blocked_by, j.rank, j.run_at, j.id
        limit least(coalesce(_least, 1), case when _first.simple then 5000 else 1 end)
        for no key update skip locked
      ) l;
      -- The session that has locked them hands them back or ends them, and then looks at the line itself.
      exit line when _line.ids is null;
      if not _line.simple then
        _line.ids := _line.ids[:1];
        _full := null;
        for _rule in
          select r.rule, r.rate
          from stepwell.job j
          cross join lateral (
            select json_array_elements(j.admission -> 'limits') as rule, false as rate
            union all
            select json_array_elements(j.admission -> 'rates'), true
          ) r
          where j.id = _line.ids[1]
            -- A job that held its permits while it waited needs no others.
            and (
              select true from stepwell.permit p
              where p.key = r.rule ->> 'key' and p.rate = r.rate and p.job_id = j.id
            ) is null
        loop
          if not (_rule.rule ->> 'key' = any (_locked)) then
            -- Its lock cannot be taken out of order. The job is first in that line for the next call.
            _full := _rule.rule ->> 'key';
            _moved := _moved || _full;
            exit;
          end if;
          _room := stepwell.room_of(_rule.rule, _rule.rate, _now);
          if _room.room <= 0 then
            _full := _rule.rule ->> 'key';
            if _rule.rate then
              _moved := _moved || _full;
            end if;
            exit;
          end if;
        end loop;
        if _full is not null then
          exit line when _full = _key;
          update stepwell.job j set blocked_by = _full where j.id = _line.ids[1];
          continue line;
        end if;
      end if;
      with made as (
        update stepwell.job j
        set state = 'ready', blocked_by = null
        where j.id = any (_line.ids)
        returning j.id, j.queue, j.rank, j.run_at, j.admission
      ), permits as (
        insert into stepwell.permit (key, job_id, rate, hold)
        select distinct r.rule ->> 'key', m.id, r.rate, coalesce((r.rule ->> 'hold')::boolean, false)
        from made m
        cross join lateral (
          select json_array_elements(m.admission -> 'limits') as rule, false as rate
          union all
          select json_array_elements(m.admission -> 'rates'), true
        ) r
        on conflict do nothing
      )
      select sum(g.jobs), _places || array_agg(row(g.queue, g.rank, g.run_at)::stepwell.place) into _got, _places
      from (select m.queue, m.rank, min(m.run_at) as run_at, count(*) as jobs from made m group by m.queue, m.rank) g;
      admitted := admitted + _got;
      -- A line of simple jobs has now used up the room that was found, or is empty.
      if _again is not null or not _line.simple then
        continue line;
      end if;
      exit line;
    end loop;
  end loop;
  if cardinality(_moved) > 0 then
    perform stepwell.notify_blocked(array(select distinct m.key from unnest(_moved) as m (key)));
  end if;
  perform stepwell.notify_ready(_places, next_in);
end
$$;
