-- Note that jobs with an admission were claimed: their rates have used tokens, and the turns of their queue have moved
-- on. The clock of the turns moves at most every 50 ms, because each move leaves a dead row.
create or replace function stepwell.note_claimed(_ids uuid[], _now timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from stepwell.permit p where p.job_id = any (_ids) and p.rate) then
    with used as (
      delete from stepwell.permit p
      where p.job_id = any (_ids) and p.rate
        -- A claim that reached its limit of bytes has locked more jobs than it took.
        and (select j.worker_id is not null from stepwell.job j where j.id = p.job_id)
      returning p.key, p.job_id
    ), taken as (
      select u.key, count(*) * max(coalesce(s.spacing, (r.rule ->> 'interval')::double precision)) as seconds
      from used u
      join stepwell.job j on j.id = u.job_id
      cross join lateral json_array_elements(j.admission -> 'rates') as r (rule)
      left join stepwell.key_setting s on s.key = u.key
      where j.id = any (_ids) and r.rule ->> 'key' = u.key
      group by u.key
    )
    insert into stepwell.bucket as b (key, used_until)
    select t.key, _now + t.seconds * interval '1 second' from taken t order by t.key
    on conflict (key) do update
    set used_until = greatest(b.used_until, _now) + (excluded.used_until - _now);
  end if;
  insert into stepwell.turn_clock as c (queue, rank, turn, moved_at)
  select j.queue, j.rank, max(j.run_at), _now from stepwell.job j
  where j.id = any (_ids) and j.fair is not null
  group by j.queue, j.rank
  order by j.queue, j.rank
  on conflict (queue, rank) do update
  set turn = greatest(c.turn, excluded.turn), moved_at = excluded.moved_at
  where c.moved_at < _now - interval '50 milliseconds' or c.moved_at > _now;
  delete from stepwell.unique_key k
  where k.job_id = any (_ids) and k.until_start
    and (select j.worker_id is not null from stepwell.job j where j.id = k.job_id);
end
$$;
