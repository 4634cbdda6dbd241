-- Look at some of the jobs that have logs, and delete the logs of those that are neither live nor kept in history. A
-- live job is looked at again in ten minutes, one in history when it expires, or in a week: it may be retried, and then
-- expire at another time. looked is the number of these jobs, deleted that of the deleted lines.
create or replace function stepwell.prune_logs(
  _limit integer default 1000,
  out looked integer,
  out deleted integer
)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _ids uuid[];
  _gone uuid[];
begin
  deleted := 0;
  _ids := array(
    select h.job_id from stepwell.run_log_head h
    where h.look_at <= _now
    order by h.look_at
    limit _limit
    for update skip locked
  );
  looked := cardinality(_ids);
  if looked = 0 then
    return;
  end if;
  -- One statement for both tables: a retry moves a job from one to the other.
  with found as (
    select j.id, _now + interval '10 minutes' as look_at from stepwell.job j where j.id = any (_ids)
    union all
    select h.id, least(h.expires_at, _now + interval '7 days') from stepwell.history h
    where h.id = any (_ids) and h.expires_at > _now
  ), kept as (
    update stepwell.run_log_head h set look_at = f.look_at
    from (select f.id, min(f.look_at) as look_at from found f group by f.id) f
    where h.job_id = any (_ids) and h.job_id = f.id
    returning h.job_id
  )
  select array(select u.id from unnest(_ids) as u (id) except select k.job_id from kept k) into _gone;
  if cardinality(_gone) > 0 then
    delete from stepwell.run_log r where r.job_id = any (_gone);
    get diagnostics deleted = row_count;
    delete from stepwell.run_log_head h where h.job_id = any (_gone);
  end if;
end
$$;
