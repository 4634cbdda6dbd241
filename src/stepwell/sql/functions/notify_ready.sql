-- A hint to the workers: these queues have something ready, and something else is due in so many seconds.
create or replace function stepwell.notify_ready(_queues text[], _due_in double precision) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('stepwell_ready', q.name) from (select distinct u.name from unnest(_queues) as u (name)) q;
  if _due_in is not null then
    perform pg_notify('stepwell_due', ceil(_due_in * 1000)::bigint::text);
  end if;
end
$$;
