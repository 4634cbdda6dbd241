-- Treat what was sent to jobs that are not live any more as their end would have: keep it as long as the history of one that can
-- be tried again, else forget it. There should be none: the end of a job sees to what it was sent. Returns how many.
create or replace function stepwell.prune_signals(_limit integer default 10000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _ids bigint[];
  _kept integer;
  _forgotten integer;
begin
  _ids := array(
    select e.id from stepwell.event e
    where e.job_id is not null and e.expires_at = 'infinity' and e.late is null
      and not exists (select from stepwell.job j where j.id = e.job_id)
      and not exists (
        select from stepwell.history h
        where h.id = e.job_id and h.state <> 'succeeded' and h.expires_at = 'infinity'
      )
    limit _limit
  );
  -- Locked, and then looked at again: a job that is tried again sets this time itself.
  _ids := array(
    select l.id from (
      select e.id from stepwell.event e where e.id = any (_ids) order by e.id for update skip locked
    ) l
  );
  update stepwell.event e set expires_at = h.expires_at
  from stepwell.history h
  where e.id = any (_ids) and h.id = e.job_id and h.state <> 'succeeded' and h.expires_at < 'infinity'
    and not exists (select from stepwell.job j where j.id = e.job_id);
  get diagnostics _kept = row_count;
  delete from stepwell.event e
  where e.id = any (_ids)
    and not exists (select from stepwell.job j where j.id = e.job_id)
    and not exists (select from stepwell.history h where h.id = e.job_id and h.state <> 'succeeded');
  get diagnostics _forgotten = row_count;
  return _kept + _forgotten;
end
$$;
