-- Give permits for the limit of a queue to its running jobs that have none, because they were claimed before the limit
-- was set: so they count, and their end is announced. Jobs that another session has locked are left to the next call.
create or replace function stepwell.count_running(_queue text) returns void
language plpgsql volatile
as $$
declare
  _key text := stepwell.queue_key(_queue);
  _ids uuid[];
begin
  _ids := array(
    select j.id from stepwell.job j
    where j.state = 'running' and j.worker_id is not null and j.queue = _queue
      and (select true from stepwell.permit p where p.key = _key and not p.rate and p.job_id = j.id) is null
    for no key update skip locked
  );
  update stepwell.job j set admission = '{}' where j.id = any (_ids) and j.admission is null;
  insert into stepwell.permit (key, job_id, rate, hold)
  select _key, j.id, false, false from stepwell.job j where j.id = any (_ids) and j.worker_id is not null
  on conflict do nothing;
end
$$;
