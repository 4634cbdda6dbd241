-- The default queue and priority of a task, from the newest live worker that may run jobs of this owner; nulls if no
-- worker knows them. Workers may differ during a deploy. Workers of schema 6 register neither.
create or replace function stepwell.task_options(_task text, _owner text, out queue text, out priority integer)
language plpgsql stable
as $$
begin
  select w.tasks -> _task ->> 'queue', (w.tasks -> _task ->> 'priority')::numeric::integer into queue, priority
  from stepwell.worker w
  where w.lease_until > stepwell.now() and (w.tasks -> _task ->> 'queue') is not null
    and (_owner is null or w.named is null or (w.named and w.owner = _owner))
  order by w.number desc
  limit 1;
end
$$;
