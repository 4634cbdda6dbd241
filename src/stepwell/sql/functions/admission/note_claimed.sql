-- Note that jobs with an admission were claimed: their rates have used tokens, and the turns of their queue have moved
-- on. The clock of the turns moves at most every 100 ms, because each move leaves a dead row.
create or replace function stepwell.note_claimed(_ids uuid[], _now timestamptz) returns void
language plpgsql volatile
as $$
declare
  _keys text[];
  _started text[];
begin
  if exists (select from stepwell.permit p where p.job_id = any (_ids) and p.rate) then
    with used as (
      delete from stepwell.permit p
      where p.job_id = any (_ids) and p.rate
        -- A claim that reached its limit of bytes has locked more jobs than it took.
        and (select j.worker_id is not null from stepwell.job j where j.id = p.job_id)
      returning p.key, p.job_id
    ), taken as (
      select u.key, count(*) as tokens, max(coalesce(s.spacing, (r.rule ->> 'interval')::double precision)) as spacing,
        max(s.burst + coalesce(s.late, 0)) as capacity, max(coalesce(s.burst, (r.rule ->> 'burst')::integer)) as burst
      from used u
      join stepwell.job j on j.id = u.job_id
      cross join lateral json_array_elements(j.admission -> 'rates') as r (rule)
      left join stepwell.key_setting s on s.key = u.key
      where j.id = any (_ids) and r.rule ->> 'key' = u.key
      group by u.key
    ), spent as (
      insert into stepwell.bucket as b (key, used, used_at)
      select t.key, t.tokens, _now from taken t order by t.key
      on conflict (key) do update
      -- A claim that began later may have been faster. More than a moment ahead: the clock was set back.
      set used_at = case when b.used_at <= _now + interval '1 second' then greatest(b.used_at, _now) else _now end,
        used = excluded.used + (
          -- A burst that was set at run time is that of all jobs: see stepwell.room_of.
          select stepwell.missing_tokens(b.used, b.used_at, t.capacity, t.spacing, _now)
          from taken t where t.key = b.key
        )
      returning b.key, b.next_at
    )
    -- If the bucket was reserved to the last token, no time was set for the jobs in line. A job may have come into the
    -- line since this statement began: then whoever admits finds the permits that are deleted here, and waits for this.
    -- The permits are counted as they were before.
    select array_agg(s.key) into _keys
    from spent s
    join taken t on t.key = s.key
    where s.next_at is null and (
      (select count(*) from stepwell.permit p where p.key = s.key and p.rate) >= t.burst
      or (select true from stepwell.job j where j.blocked_by = s.key limit 1)
    );
    perform stepwell.notify_blocked(_keys);
  end if;
  insert into stepwell.turn_clock as c (queue, rank, turn, moved_at)
  select j.queue, j.rank, max(j.run_at), _now from stepwell.job j
  where j.id = any (_ids) and j.fair is not null
  group by j.queue, j.rank
  order by j.queue, j.rank
  on conflict (queue, rank) do update
  set turn = greatest(c.turn, excluded.turn), moved_at = excluded.moved_at
  where c.moved_at < _now - interval '100 milliseconds' or c.moved_at > _now;
  _started := array(
    select j.admission #>> '{unique,key}' from stepwell.job j
    where j.id = any (_ids) and j.worker_id is not null and (j.admission #>> '{unique,until_start}')::boolean
  );
  if cardinality(_started) > 0 then
    delete from stepwell.unique_key k
    where k.key = any (_started) and k.until_start and k.job_id in (select i.id from unnest(_ids) as i (id));
  end if;
end
$$;
