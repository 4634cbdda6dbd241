-- Claim from a paused queue again.
create or replace function stepwell.resume(_queue text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update stepwell.queue q set paused_at = null where q.name = _queue;
  perform pg_notify('stepwell_ready', _queue);
end
$$;
