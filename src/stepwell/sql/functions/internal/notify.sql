-- Notify, unless that could make the caller's commit fail. A notification is a hint, behind which stands polling: it must never
-- keep anybody from committing. A payload of 8000 bytes is an error at once. And while some session listens and stays in a
-- transaction, the queue of notifications grows; once it is full, every commit with a notification fails.
create or replace function stepwell.notify(_channel text, _payload text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if octet_length(_payload) < 8000 and pg_notification_queue_usage() < 0.5 then
    perform pg_notify(_channel, _payload);
  end if;
end
$$;
