-- Admit the next jobs in the lines of these keys, as many as their limits and rates have room for: they become ready,
-- with a permit for each limit and rate. Returns how many were admitted, and in how many seconds a rate has room for
-- more.
-- The lock of a key is one of 256 rows, locked in order until commit, so that two sessions do not count the same room
-- twice. (Any role could hold an advisory lock.) A session that has to wait for long leaves the keys to a worker
-- (stepwell_blocked).
-- Where more are admitted than a limit or rate allows that was lowered at run time, stepwell.take_back takes some back.
-- Most lines are of jobs with one limit and no rate: see stepwell.lone_limit. They are admitted here, all keys together.
-- The lines of other jobs are left to stepwell.admit_lines.
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
  _next record;
  _got record;
  _places stepwell.place[];
  _any_set boolean;
begin
  admitted := 0;
  if cardinality(_keys) > 1 then
    _keys := array(select distinct k.key from unnest(_keys) as k (key) where k.key is not null order by k.key);
    if cardinality(_keys) > _most_keys then
      perform stepwell.notify_blocked(_keys[_most_keys + 1 :]);
      _keys := _keys[: _most_keys];
    end if;
  end if;
  begin
    perform from stepwell.key_lock l
    where l.stripe = any (array(select hashtext(k.key) & 255 from unnest(_keys) as k (key)))
    order by l.stripe
    for no key update;
  exception when lock_not_available or deadlock_detected then
    perform stepwell.notify_blocked(_keys);
    return;
  end;

  perform from stepwell.key_setting s where s.key = any (_keys) limit 1;
  _any_set := found;
  if _any_set then
    perform stepwell.take_back(_keys);
  end if;

  -- A job that another session has locked is left out: that session hands it back or ends it, and then looks at the
  -- line itself.
  select array_agg(c.ctid) as ctids, array_agg(c.id) as ids, array_agg(l.key) as keys,
    array_agg(l.key) filter (where l.most is null or c.lone_limit is null) as others,
    -- By its own number, so many jobs of the line may be admitted when this job is the last of them.
    array_agg(l.room + case when l.is_set then 0 else c.lone_limit - l.most end) as rooms,
    bool_or(not l.is_set and c.lone_limit <> l.most) as mixed
  into _next
  from (
    select k.key, f.most, f.rank, f.run_at, f.id, s.most is not null as is_set,
      case
        when f.most is not null then greatest(
          0,
          coalesce(s.most, f.most) - (select count(*) from stepwell.permit p where p.key = k.key and not p.rate)
        )
        else 0
      end as room
    from unnest(_keys) as k (key)
    left join stepwell.key_setting s on _any_set and s.key = k.key
    cross join lateral (
      select j.lone_limit as most, j.rank, j.run_at, j.id
      from stepwell.job j
      where j.blocked_by = k.key
      order by j.blocked_by, j.rank, j.run_at, j.id
      limit 1
    ) f
    offset 0
  ) l
  left join lateral (
    select j.ctid, j.id, j.lone_limit
    from stepwell.job j
    -- From the first one on: in front of it may be many dead rows.
    where j.blocked_by = l.key and (j.rank, j.run_at, j.id) >= (l.rank, l.run_at, l.id)
    order by j.blocked_by, j.rank, j.run_at, j.id
    limit l.room
    for no key update skip locked
  ) c on true
  where c.id is not null or l.most is null;
  if _next.others is not null then
    select array_agg(n.ctid) as ctids, array_agg(n.id) as ids, array_agg(n.key) as keys,
      array(select distinct o.key from unnest(_next.others) as o (key)) as others, array_agg(n.room) as rooms,
      _next.mixed as mixed
    into _next
    from unnest(_next.ctids, _next.ids, _next.keys, _next.rooms) as n (ctid, id, key, room)
    where n.id is not null and n.key <> all (_next.others);
  end if;
  if _next.mixed then
    -- Jobs of one key have different numbers, as while a new number is deployed. The first job that does not fit its
    -- own stops the line.
    select array_agg(n.ctid) as ctids, array_agg(n.id) as ids, array_agg(n.key) as keys, _next.others as others
    into _next
    from (
      select m.*, bool_and(m.number <= m.room) over (partition by m.key order by m.number) as fits
      from (
        select u.*, row_number() over (partition by u.key order by u.n) as number
        from unnest(_next.ctids, _next.ids, _next.keys, _next.rooms) with ordinality as u (ctid, id, key, room, n)
      ) m
    ) n
    where n.fits;
  end if;
  if _next.ids is not null then
    insert into stepwell.permit (key, job_id, rate, hold)
    select n.key, n.id, false, false from unnest(_next.keys, _next.ids) as n (key, id);
    with made as (
      update stepwell.job j set state = 'ready', blocked_by = null where j.ctid = any (_next.ctids)
      returning j.queue, j.rank, j.run_at
    )
    select array_agg(row(g.queue, g.rank, g.run_at)::stepwell.place) into _places
    from (select m.queue, m.rank, min(m.run_at) as run_at from made m group by m.queue, m.rank) g;
    admitted := cardinality(_next.ids);
  end if;
  if _next.others is not null then
    begin
      _got := stepwell.admit_lines(_next.others, _keys);
      admitted := admitted + _got.admitted;
      next_in := _got.next_in;
      _places := _places || _got.places;
    exception when lock_not_available or deadlock_detected then
      -- Somebody has locked a bucket, such as to change its rate. The caller, which may write the end of a job, must
      -- not fail for that.
      perform stepwell.notify_blocked(_next.others);
    end;
  end if;
  if _places is not null or next_in is not null then
    perform stepwell.notify_ready(_places, next_in);
  end if;
end
$$;
