-- For how many seconds a job that failed or was cancelled is kept. The first that is given counts: the job's policy,
-- the task's own, the queue's, the app's, the default. _task is what a worker has registered of the task. Workers of
-- schema 9 do not say whose keep_failed it is; then it counts as the task's own.
create or replace function stepwell.keep_failed_of(_policy json, _task jsonb, _queue text) returns double precision
language plpgsql stable
as $$
declare
  _own boolean := coalesce(_task ->> 'by_queue', 'false') <> 'true';
begin
  return coalesce(
    (_policy ->> 'keep_failed')::double precision,
    case when _own then (_task ->> 'keep_failed')::double precision end,
    (select s.keep_failed from stepwell.queue_keep s where s.name = _queue),
    (_task ->> 'keep_failed')::double precision,
    2592000
  );
end
$$;
