-- Add the counts of up to _limit rows of stepwell.failure_tally to their groups, and those of lost runs to the counters
-- of this minute, and delete these rows. It waits for no group: the tallies of one that another session has locked stay
-- for the next call. If there are lost runs, it waits for their counters. A resolved group is opened again
-- if a failure is later than the moment at which it was resolved. Returns how many tallies it has added.
create or replace function stepwell.fold_failures(_limit integer default 10000) returns integer
language plpgsql volatile security definer
as $$
declare
  _ids bigint[];
  _new record;
  _prints uuid[];
  _locked uuid[];
  _folded integer := 0;
  _after bigint := 0;
begin
  -- The tallies of a locked group must not hide those behind them. Ten rounds: they are looked at in each call.
  for _round in 1 .. 10 loop
    _ids := array(
      select t.id from stepwell.failure_tally t where t.id > _after order by t.id limit _limit - _folded
      for update skip locked
    );
    exit when cardinality(_ids) = 0;
    _after := (select max(i.id) from unnest(_ids) as i (id));
    select array_agg(n.fingerprint) as prints, array_agg(n.task) as tasks, array_agg(n.type) as types,
      array_agg(n.frame) as frames, array_agg(n.message) as messages, array_agg(n.job_id) as job_ids,
      array_agg(n.at) as ats
    into _new
    from (
      select distinct on (t.fingerprint) t.fingerprint, t.task, t.type, t.frame, t.message, t.job_id, t.at
      from stepwell.failure_tally t
      where t.id = any (_ids)
        and not exists (select from stepwell.failure_group g where g.fingerprint = t.fingerprint)
        and not exists (
          select from stepwell.failure_group o
          where o.fingerprint = stepwell.fingerprint(t.task, '(other)', null) and o.is_full
        )
      order by t.fingerprint, t.at
    ) n;
    if _new.prints is not null then
      perform stepwell.open_failure_groups(
        _new.prints, _new.tasks, _new.types, _new.frames, _new.messages, _new.job_ids, _new.ats
      );
    end if;
    -- The group is looked up once for each fingerprint, and not for each tally.
    with prints as materialized (
      select u.task, u.type, u.frame, stepwell.failure_group_of(u.task, u.type, nullif(u.frame, '')) as print
      from (
        select distinct t.task, t.type, coalesce(t.frame, '') as frame from stepwell.failure_tally t
        where t.id = any (_ids)
      ) u
    )
    select array_agg(t.id order by t.id), array_agg(p.print order by t.id) into _ids, _prints
    from stepwell.failure_tally t
    join prints p on p.task = t.task and p.type = t.type and p.frame = coalesce(t.frame, '')
    where t.id = any (_ids);
    _locked := array(
      select g.fingerprint from stepwell.failure_group g
      where g.fingerprint = any (array(select distinct p.print from unnest(_prints) as p (print)))
      order by g.fingerprint
      for no key update skip locked
    );
    with mine as materialized (
      select u.id, u.print from unnest(_ids, _prints) as u (id, print)
      where u.print in (select l.print from unnest(_locked) as l (print))
    ), gone as (
      delete from stepwell.failure_tally t using mine m where t.id = any (_ids) and t.id = m.id
      returning m.print, t.id, t.at, t.count, t.message, t.job_id, t.task, t.queue, t.lost
    ), lost as (
      insert into stepwell.stat as s (minute, task, queue, failed)
      select date_trunc('minute', stepwell.now()), g.task, g.queue, least(sum(g.lost), 2147483647) from gone g
      where g.lost > 0 and length(g.task) between 1 and 200 and length(g.queue) between 1 and 200
      group by g.task, g.queue
      -- In the order of stepwell.add_stats.
      order by g.task, g.queue
      on conflict on constraint stat_pkey do update set failed = least(s.failed::bigint + excluded.failed, 2147483647)
    ), hours as (
      insert into stepwell.failure_hour as h (fingerprint, hour, count)
      select g.print, date_trunc('hour', g.at, 'UTC'), sum(g.count) from gone g group by 1, 2
      on conflict on constraint failure_hour_pkey do update set count = h.count + excluded.count
    ), summed as (
      select g.print, sum(g.count) as count, min(g.at) as first_at, max(g.at) as last_at,
        (array_agg(g.message order by g.at desc, g.id desc))[1] as message,
        (array_agg(g.job_id order by g.at desc, g.id desc))[1] as job_id, count(*) as tallies
      from gone g
      group by g.print
    ), added as (
      update stepwell.failure_group f
      set count = f.count + s.count, first_at = least(f.first_at, s.first_at), last_at = greatest(f.last_at, s.last_at),
        message = case when s.last_at >= f.last_at then s.message else f.message end,
        job_id = case when s.last_at >= f.last_at then s.job_id else f.job_id end,
        state = case when a.again then 'open' else f.state end,
        reopened = f.reopened + a.again::integer,
        reopened_at = case when a.again then s.last_at else f.reopened_at end
      from summed s
      cross join lateral (
        select coalesce(g.state = 'resolved' and s.last_at > g.state_at, false) as again
        from stepwell.failure_group g where g.fingerprint = s.print
      ) a
      where f.fingerprint = s.print
    )
    select _folded + coalesce(sum(s.tallies), 0) into _folded from summed s;
    exit when _folded >= _limit;
  end loop;
  return _folded;
end
$$;
