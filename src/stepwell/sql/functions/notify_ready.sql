-- A hint to the workers: these queues have something ready, and something else is due in so many seconds. It cannot fail, nor
-- make the commit fail: see stepwell.notify.
create or replace function stepwell.notify_ready(_queues text[], _due_in double precision) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_notification_queue_usage() >= 0.5 then
    return;
  end if;
  perform pg_notify('stepwell_ready', q.name)
  from (select distinct u.name from unnest(_queues) as u (name)) q
  where octet_length(q.name) < 8000;
  if _due_in is not null then
    perform pg_notify('stepwell_due', ceil(greatest(0, least(_due_in, 3155760000)) * 1000)::bigint::text);
  end if;
end
$$;
