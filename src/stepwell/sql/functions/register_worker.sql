-- Enter a worker with its first lease.
create or replace function stepwell.register_worker(
  _host text,
  _pid integer,
  _version text,
  _queues text[],
  _tasks text,
  _concurrency integer,
  _lease double precision
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _id uuid := stepwell.uuid7();
begin
  insert into stepwell.worker (id, host, pid, version, queues, tasks, concurrency, started_at, renewed_at, lease_until)
  values (_id, _host, _pid, _version, _queues, _tasks::jsonb, _concurrency, _now, _now, _now + _lease * interval '1 second');
  return _id;
end
$$;
