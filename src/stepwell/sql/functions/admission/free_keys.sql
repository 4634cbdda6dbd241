-- Free the unique keys of jobs that have ended. A key with a period stays taken until that is over, unless the job was
-- cancelled: then nobody wants its work any more, and a new enqueue is a new decision.
-- Only keys of live jobs, and those whose period lasts, are changed. Producers take over the others, and a job that
-- ends must not wait for their transactions.
create or replace function stepwell.free_keys(_ended uuid[], _cancelled uuid[], _now timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if _cancelled is not null then
    delete from stepwell.unique_key k
    where k.job_id = any (_cancelled) and (k.live or k.expires_at > _now);
  end if;
  delete from stepwell.unique_key k
  where k.job_id = any (_ended) and k.live and (k.expires_at is null or k.expires_at <= _now);
  update stepwell.unique_key k set live = false where k.job_id = any (_ended) and k.live;
end
$$;
