-- The key of the permits for the limit of a queue. It begins with a character that keys from Python cannot have.
create or replace function stepwell.queue_key(_queue text) returns text
language sql immutable
return E'\x02' || _queue;
