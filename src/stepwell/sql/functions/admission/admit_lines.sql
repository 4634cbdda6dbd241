-- Admit the next jobs in the lines of these keys, whatever rules the jobs have, for stepwell.admit_keys. It holds the
-- locks of the keys in _locked.
-- A job with several rules needs room in each. If one has none, the job moves to the line of that key. The locks of
-- further keys cannot be taken in order now, so those that are free are taken, and a job that needs another moves to
-- its line, for a worker to look at.
-- In rounds: each takes as many jobs from each line as it has room for, and numbers them in each of their rules. A job
-- whose numbers all fit is admitted. The others moved if a rule was full before, or else are looked at again: a job
-- that was not admitted had a number, too. What is left after some rounds is left to a worker, so a call ends soon
-- however many jobs are in line.
create or replace function stepwell.admit_lines(
  _keys text[],
  _locked text[],
  out admitted integer,
  out next_in double precision,
  out places stepwell.place[]
)
language plpgsql volatile
as $$
declare
  _most_rounds constant integer := 20;
  _most_jobs constant integer := 500;
  _now timestamptz := stepwell.now();
  _stripes integer[] := array(select hashtext(k.key) & 255 from unnest(_locked) as k (key));
  _open text[] := _keys;
  _tell text[] := '{}';
  _line record;
  _next record;
  _done record;
  _round integer := 0;
begin
  admitted := 0;
  loop
    -- The rules of the first job that are for the key of its line decide how many of the line may follow it.
    select array_agg(l.key) filter (where l.room > 0) as keys, array_agg(l.room) filter (where l.room > 0) as rooms,
      array_agg(l.key) filter (where l.room <= 0 and l.next_in is not null) as full,
      array_agg(l.next_in) filter (where l.room <= 0 and l.next_in is not null) as next_ins,
      min(l.next_in) filter (where l.room <= 0) as next_in, array_agg(l.key) filter (where l.room is null) as empty
    into _line
    from (
      select k.key, case when f.id is not null then coalesce(r.room, 1) end as room, r.next_in
      from unnest(_open) as k (key)
      left join lateral (
        select j.id, j.admission from stepwell.job j
        where j.blocked_by = k.key
        order by j.blocked_by, j.rank, j.run_at, j.id
        limit 1
      ) f on true
      left join lateral (
        select min(m.room) as room, min(m.next_in) filter (where e.rate) as next_in
        from stepwell.rules_of(f.admission) e
        cross join lateral stepwell.room_of(e.rule, e.rate, _now) m
        where e.rule ->> 'key' = k.key
      ) r on true
    ) l;
    if _line.empty is not null then
      update stepwell.bucket b set next_at = null where b.key = any (_line.empty) and b.next_at is not null;
    end if;
    if _line.full is not null then
      next_in := least(next_in, _line.next_in);
      insert into stepwell.bucket as b (key, used, used_at, next_at)
      select f.key, 0, _now, _now + f.next_in * interval '1 second'
      from unnest(_line.full, _line.next_ins) as f (key, next_in)
      -- A time in the future is from before the clock was set back: the bucket would not fill up until then. A claim
      -- may be a moment ahead of this call.
      on conflict (key) do update
      set next_at = excluded.next_at,
        used_at = case
          when b.used_at > excluded.used_at + interval '1 second' then excluded.used_at else b.used_at
        end;
    end if;
    exit when _line.keys is null;
    _round := _round + 1;
    if _round > _most_rounds then
      _tell := _tell || _line.keys;
      exit;
    end if;

    select array_agg(c.id) as ids, array_agg(l.key) as lines, array_agg(c.admission) as admissions,
      array_agg(c.rank) as ranks, array_agg(c.run_at) as run_ats, array_agg(distinct l.key) as open
    into _next
    from unnest(_line.keys, _line.rooms) as l (key, room)
    cross join lateral (
      select j.id, j.admission, j.rank, j.run_at from stepwell.job j
      where j.blocked_by = l.key
      order by j.blocked_by, j.rank, j.run_at, j.id
      limit least(l.room, _most_jobs)
      for no key update skip locked
    ) c;
    -- The session that has locked the jobs hands them back or ends them, and then looks at the line itself.
    exit when _next.ids is null;
    _open := _next.open;
    _stripes := _stripes || array(
      select l.stripe::integer from stepwell.key_lock l
      where l.stripe = any (array(
        select distinct hashtext(e.rule ->> 'key') & 255
        from unnest(_next.admissions) as a (admission)
        cross join lateral stepwell.rules_of(a.admission) e
        except
        select s.stripe from unnest(_stripes) as s (stripe)
      ))
      for no key update skip locked
    );

    with needed as materialized (
      -- A job that held its permits while it waited needs no others.
      select distinct on (c.id, e.rate, e.rule ->> 'key') c.id, c.line, c.rank, c.run_at, e.rule ->> 'key' as key,
        e.rate, e.rule::text as rule
      from unnest(_next.ids, _next.lines, _next.admissions, _next.ranks, _next.run_ats)
        as c (id, line, admission, rank, run_at)
      cross join lateral stepwell.rules_of(c.admission) e
      where (
        select true from stepwell.permit p where p.key = e.rule ->> 'key' and p.rate = e.rate and p.job_id = c.id
      ) is null
      -- Of two rules with one key, the stricter one.
      order by c.id, e.rate, e.rule ->> 'key', (e.rule ->> 'most')::integer,
        (e.rule ->> 'interval')::double precision desc
    ), room as materialized (
      select r.rule, r.rate,
        case when hashtext(r.key) & 255 = any (_stripes) then (stepwell.room_of(r.rule::json, r.rate, _now)).room end
          as room
      from (select distinct n.key, n.rule, n.rate from needed n) r
    ), verdict as materialized (
      select n.id, bool_and(coalesce(n.number <= n.room, false)) as fits,
        -- A room that is not known counts as full.
        (
          array_agg(n.key order by n.rate, n.key) filter (where coalesce(n.room, 0) <= 0 and n.key <> n.line)
        )[1] as full,
        bool_or(coalesce(n.room, 0) <= 0 and (n.rate or n.room is null)) as told
      from (
        select n.id, n.line, n.key, n.rate, r.room,
          row_number() over (partition by n.key, n.rate order by n.rank, n.run_at, n.id) as number
        from needed n
        join room r on r.rule = n.rule and r.rate = n.rate
      ) n
      group by n.id
    ), fitting as materialized (
      select c.id, c.admission
      from unnest(_next.ids, _next.admissions) as c (id, admission)
      left join verdict v on v.id = c.id
      where v.fits is not false
    ), made as (
      update stepwell.job j set state = 'ready', blocked_by = null where j.id = any (array(select f.id from fitting f))
      returning j.queue, j.rank, j.run_at
    ), permits as (
      insert into stepwell.permit (key, job_id, rate, hold)
      select distinct e.rule ->> 'key', f.id, e.rate, coalesce((e.rule ->> 'hold')::boolean, false)
      from fitting f
      cross join lateral stepwell.rules_of(f.admission) e
      on conflict do nothing
    ), moved as (
      update stepwell.job j set blocked_by = v.full
      from verdict v
      where j.id = any (array(select w.id from verdict w where not w.fits and w.full is not null)) and v.id = j.id
      returning j.blocked_by, v.told
    )
    select (select count(*) from fitting) as fitted, (select count(*) from moved) as moved,
      array(select distinct m.blocked_by from moved m where m.told) as told,
      array(
        select row(m.queue, m.rank, min(m.run_at))::stepwell.place from made m group by m.queue, m.rank
      ) as places
    into _done;
    admitted := admitted + _done.fitted;
    places := places || _done.places;
    _tell := _tell || _done.told;
    -- The first job in a line has the first numbers. If it neither fits nor moves, its own line is full after all.
    exit when _done.fitted + _done.moved = 0;
  end loop;
  if cardinality(_tell) > 0 then
    perform stepwell.notify_blocked(array(select distinct t.key from unnest(_tell) as t (key)));
  end if;
end
$$;
