-- Send a notification, unless it could make the caller's commit fail. Notifications are hints, and polling backs them
-- up: they must never prevent a commit. A payload of 8000 bytes is an error. The notification queue grows while a
-- listening session stays in a transaction, and once it is full, every commit with a notification fails.
create or replace function stepwell.notify(_channel text, _payload text) returns void
language plpgsql volatile
as $$
begin
  if octet_length(_payload) < 8000 and pg_notification_queue_usage() < 0.5 then
    perform pg_notify(_channel, _payload);
  end if;
end
$$;
