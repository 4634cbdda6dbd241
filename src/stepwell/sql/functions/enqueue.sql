-- Put one job in, from any language: select stepwell.enqueue('ship', '{"order_id": 7}', delay => '1 hour').
create or replace function stepwell.enqueue(
  task text,
  args json default '{}',
  queue text default 'default',
  priority integer default 0,
  delay interval default null,
  run_at timestamptz default null,
  metadata jsonb default null,
  max_attempts integer default null,
  owner text default null
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (stepwell.enqueue_many(
    array[task], array[args::text], array[queue], array[priority], array[extract(epoch from delay)::double precision],
    array[run_at], array[metadata::text], array[max_attempts],
    case when owner is not null then array[owner] end
  ))[1];
end
$$;
