-- Note that jobs with an admission were claimed: their rates have used tokens, and the turns of their queue have moved
-- on. The clock of the turns moves at most every 100 ms, because each move leaves a dead row.
create or replace function stepwell.note_claimed(_ids uuid[], _now timestamptz) returns void
language plpgsql volatile
as $$
declare
  _keys text[];
begin
  if exists (select from stepwell.permit p where p.job_id = any (_ids) and p.rate) then
    with used as (
      delete from stepwell.permit p
      where p.job_id = any (_ids) and p.rate
        -- A claim that reached its limit of bytes has locked more jobs than it took.
        and (select j.worker_id is not null from stepwell.job j where j.id = p.job_id)
      returning p.key, p.job_id
    ), taken as (
      select u.key, count(*) as tokens, max(coalesce(s.spacing, (r.rule ->> 'interval')::double precision)) as spacing
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
      set used_at = greatest(b.used_at, _now), used = excluded.used + greatest(
        0,
        b.used - greatest(0, extract(epoch from _now - b.used_at))
          / (select t.spacing from taken t where t.key = b.key)
      )
      returning b.key, b.next_at
    )
    select array_agg(s.key) into _keys from spent s
    where s.next_at is null and (select true from stepwell.job j where j.blocked_by = s.key limit 1);
    -- The bucket was reserved to the last token, so no time was set for the jobs in line.
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
end
$$;
