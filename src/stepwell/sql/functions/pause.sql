-- Claim nothing more from a queue until it is resumed; what runs goes on.
create or replace function stepwell.pause(_queue text) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into stepwell.queue (name, paused_at) values (_queue, stepwell.now())
  on conflict on constraint queue_pkey do update set paused_at = coalesce(stepwell.queue.paused_at, excluded.paused_at)
$$;
