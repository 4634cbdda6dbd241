-- Enqueue one job, from any language: select stepwell.enqueue('ship', '{"order_id": 7}', delay => '1 hour').
-- args is a JSON object: json, jsonb or text. A literal or an untyped parameter counts as text. With one function for
-- json and one for jsonb, Postgres could not resolve a call with a literal.
-- If queue or priority is null, the default of the task applies, as stepwell.task_options finds it.
create or replace function stepwell.enqueue(
  task text,
  args anycompatible default '{}'::text,
  queue text default null,
  priority integer default null,
  delay interval default null,
  run_at timestamptz default null,
  metadata jsonb default null,
  max_attempts integer default null,
  owner text default null
) returns uuid
language plpgsql volatile security definer
as $$
declare
  _own record;
begin
  if queue is null or priority is null then
    _own := stepwell.task_options(task, owner);
    queue := coalesce(queue, _own.queue);
    priority := coalesce(priority, _own.priority);
  end if;
  return (stepwell.enqueue_many(
    array[task], array[args::text], array[queue], array[priority], array[extract(epoch from delay)::double precision],
    array[run_at], array[metadata::text], array[max_attempts],
    case when owner is not null then array[owner] end
  ))[1];
end
$$;
