-- Treat the signals of jobs that are no longer live as the end of the job would have: keep them as long as the history
-- of a job that can be retried, else delete them. Normally there are none, because the end of a job handles its
-- signals. Returns how many.
create or replace function stepwell.prune_signals(_limit integer default 10000) returns integer
language plpgsql volatile security definer
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
  -- Lock, then check again: a retry of the job sets this time itself.
  _ids := array(
    select l.id from (select e.id from stepwell.event e where e.id = any (_ids) order by e.id for update skip locked) l
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
